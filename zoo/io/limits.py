"""Limits on untrusted files and other inputs: size, count, depth and time."""

# Every reader takes its limits from this module. A limit is well above the values of published
# checkpoints, and low enough that a file at the limit is read in bounded time and memory.

# JSON and YAML. The largest published configuration has some 100 KB, the largest tokenizer.json
# some 60 MB (a million pieces with their scores).
MAX_JSON_BYTES = 16 << 20  # configurations, manifests, lock files
MAX_JSON_VALUES = 1_000_000
MAX_JSON_DEPTH = 64  # of any JSON; published configurations stay below 10
MAX_TOKENIZER_BYTES = 128 << 20  # tokenizer.json, vocab.json, merges.txt, SentencePiece models
MAX_TOKENIZER_VALUES = 8_000_000
MAX_INTEGER_DIGITS = 100  # model_max_length is 1e30 where a tokenizer has none
MAX_YAML_BYTES = 1 << 20  # registries and recipes
MAX_YAML_VALUES = 100_000
MAX_YAML_DEPTH = 32

# Configurations. The largest that is published has 250,880 tokens, 96 layers, 21,843 labels.
MAX_CONFIG_NUMBER = 2**31 - 1  # of a size, such as vocab_size: token ids are 32-bit integers
MAX_CONFIG_COUNT = 10_000  # of modules: layers, heads, groups of layers
MAX_CONFIG_LABELS = 1_000_000  # outputs of a classification head
MAX_MODULES = 100  # of a sentence encoder; published ones have up to five

# Tokenizers. Published ones have at most a million tokens, of at most 512 characters.
MAX_TOKEN_ID = (1 << 24) - 1
MAX_TOKEN_LENGTH = 1_024  # characters; splitting a text takes time in proportion
MAX_PIECE_LENGTH = 7_999  # bytes of a SentencePiece piece; sentencepiece refuses longer ones
MAX_ADDED_TOKENS = 100_000
MAX_ADDED_CHARACTERS = 2_000_000  # of all added tokens, which are searched for together
MAX_WORD_LENGTH = 1_000  # max_input_chars_per_word of WordPiece: time grows with its square
MAX_TOKENIZER_STEPS = 64  # normalizers, pre-tokenizers, post-processors or decoders in a row
MAX_TOKENIZER_GROWTH = 64  # factor by which they may lengthen a text
MAX_FIXED_TOKENS = 1 << 20  # to which tokenizer.json pads every text
MAX_TEMPLATE_TOKENS = 64  # special tokens around a text
MAX_PATTERN_LENGTH = 4_000  # characters of a regular expression
MAX_PATTERN_REPEAT = 32  # a repetition with more choices counts as one without bound
MAX_PATTERN_WAYS = 1_000  # choices of a regular expression that an engine may have to try

# Weights. A published checkpoint has fewer than 10,000 tensors.
MAX_TENSORS = 100_000  # in its headers, or by its configuration
MAX_NAME_LENGTH = 1_000  # characters of a tensor's name
MAX_HEADER_BYTES = 16 << 20  # of a safetensors file, where a tensor takes about 150
MAX_HEADER_VALUES = 2_000_000  # of a safetensors header, where a tensor has about ten
MAX_GGUF_HEADER_BYTES = 1 << 28  # of a GGUF file, whose header has the vocabulary
MAX_GGUF_KEYS = 10_000  # of its header, which has about 30
MAX_GGUF_STRINGS = 2_000_000  # of an array of its header, such as tokens or merges
MAX_INDEX_BYTES = 1 << 24  # of an index of shards in JSON, where a tensor takes about 100
MAX_SHAPES_BYTES = 1 << 20  # of a list of shapes, where a tensor takes about 10
MAX_PICKLE_BYTES = 1 << 23  # where a tensor takes about 150
MAX_PICKLE_STEPS = 1_000_000  # instructions, and items that they copy; a tensor takes about 40
MAX_ZIP_DIRECTORY_BYTES = 1 << 22  # a record takes about 90, and a tensor is one record
MAX_STORAGE_USES = 32  # a file's tensors may be this many times as large as the file
MAX_TABLE_BYTES = 1 << 24  # of the index of a TensorFlow checkpoint, where a tensor takes about 60
MAX_TABLE_TENSORS = 50_000
MAX_HDF5_OBJECTS = 20_000  # arrays and groups
MAX_HDF5_DEPTH = 32  # groups inside each other
MAX_HDF5_CHUNK_BYTES = 1 << 25

# Adapters. Published ones have ranks up to 256 and at most a few hundred virtual tokens.
MAX_ADAPTER_SIZE = 1 << 16  # a rank, a number of virtual tokens, the width of a projection

# ONNX graphs. The largest export, a decoder of 24 layers, has about 5,000 nodes.
MAX_ONNX_FILE_BYTES = 1 << 31  # of a graph; where a protobuf ends
MAX_ONNX_NODES = 200_000
MAX_ONNX_ATTRIBUTES = 1_000_000
MAX_ONNX_FOLDED_BYTES = 1 << 28  # of one constant that the runtime computes while it loads a graph
MAX_ONNX_LOAD_SECONDS = 600.0  # to load a graph, with all optimisations

# Corpora and the texts that they are built from.
MAX_CORPUS_MANIFEST_BYTES = 256 << 20  # corpus.json lists every source file: about a million
MAX_CORPUS_MANIFEST_VALUES = 10_000_000  # a source file takes three
MAX_CORPUS_TOKENIZER_BYTES = 1 << 30
MAX_DOCUMENT_CHARACTERS = 1 << 20  # a longer document is cut into several: memory is bounded
MAX_LINE_BYTES = 1 << 20  # a longer line of text is cut into several
MAX_ROW_BYTES = 32 << 20  # of a line of JSON, which is read at once
MAX_ARTICLE_BYTES = 1 << 29  # of an article with questions in JSON; all of SQuAD has 42 MB
MAX_ARTICLE_VALUES = 20_000_000  # of an article, where a question takes about ten
# Of a frame of zstd, which takes as much memory: the largest that `zstd -d` reads by default, and
# the largest that `zstd -19 --ultra -22` writes. `zstd --long=31` writes up to 2 GiB.
MAX_ZSTD_WINDOW = 128 << 20
MAX_TAR_HEADER_BYTES = 1 << 20  # size of the long name or the further fields of a member
MAX_EXPANSION = 500  # uncompressed bytes for each compressed one; of real texts below 20 ...
FREE_EXPANSION_BYTES = 64 << 20  # ... which counts from this size on
MAX_PARQUET_ITEMS = 1_000_000  # strings, and items of a list, in the metadata of a file

# Training runs. Their settings come from recipes, files and options.
MAX_MARGIN = 10  # Of loss surfaces; farther from the models, losses say nothing about training.
MAX_THREADS = 1024  # libraries abort the process if they cannot start that many threads
MAX_RUN_NUMBER = 1_000_000_000  # steps, tokens of a step, steps between checkpoints
MAX_LANES = 4096  # Lanes of a stream. Each has a block of documents in memory.
MAX_ROW_TOKENS = 1 << 20  # tokens of a training example
MAX_NEW_VOCABULARY = 4_000_000  # of a new tokenizer; its training takes 70 bytes for each at once
MAX_STATE_BYTES = 64 << 20  # of run.json, and of a checkpoint's state.json, which lists its files

# Inputs and options of tasks. They are the user's own; the limits keep memory bounded: a tokenized
# text takes some 160 bytes a character.
MAX_TEXT_CHARACTERS = 1 << 22  # of a text, and of the texts that are tokenized together
MAX_INPUT_LINE_BYTES = 1 << 25  # of a line of input: a JSON record with a text
MAX_NEW_TOKENS = 100_000
MAX_GENERATION_IDS = 100_000  # token ids of a setting, such as bad_words_ids
MAX_BEAMS = 1_000
MAX_BEAM_TOKENS = 1_000_000  # beams times new tokens, for which caches are allocated

# Responses of the Hub.
MAX_HUB_LISTING_BYTES = 32 << 20  # of the list of a repository's files, decompressed
MAX_HUB_LISTED_FILES = 100_000
MAX_HUB_FILE_BYTES = 50 * 10**9  # the Hub serves no larger file over plain HTTP
MAX_HUB_MESSAGE_BYTES = 64 << 10  # read of the body of an error or of a redirect
MIN_HUB_RATE = 1024  # bytes a second, on average ...
HUB_SLOW_SECONDS = 60  # ... over an answer that takes longer than this

# Plugins.
MAX_PLUGIN_CHECK_SECONDS = 300.0  # to check a plugin
MAX_PLUGIN_FULL_CHECK_SECONDS = 7200.0  # ... with training and the reference library
