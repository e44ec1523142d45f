"""Files of object stores, data sets of the Hub and web servers, by their URLs."""
