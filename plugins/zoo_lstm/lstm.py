"""LSTM layers over batches with padding and over packed rows."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import pad
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from zoo.nn.layers.dropout import Dropout


class TextRows(NamedTuple):
    """A place for each token of a batch, such that each text begins a row of its own.

    A layer begins each row with a state of zeros and reads it from its first place on. So no state
    goes from one document of a packed row to the next, and padding before a text is not read.

    Attributes:
        row: row of the place of each token, (batch, tokens), int64.
        place: number of the place in the row, (batch, tokens); for padding, one after the last.
        shape: number of rows, and of places in each.
        lengths: number of tokens in each row, (rows,), on the CPU; ``None`` in a graph.
    """

    row: Tensor
    place: Tensor
    shape: tuple[int, int]
    lengths: Tensor | None

    @property
    def is_mostly_padding(self) -> bool:
        """Whether most of the places have no token."""
        rows, places = self.shape
        return self.lengths is not None and rows * places > 2 * int(self.lengths.sum())

    def arrange(self, x: Tensor) -> Tensor:
        """Return the vectors of a batch, (batch, tokens, width), in their rows."""
        rows, places = self.shape
        arranged = x.new_zeros(rows, places + 1, x.shape[-1])
        return arranged.index_put((self.row, self.place), x)[:, :places]

    def restore(self, x: Tensor) -> Tensor:
        """Return vectors in rows as a batch, (batch, tokens, width); at padding, any of a row."""
        return x[self.row, self.place.clamp(max=self.shape[1] - 1)]


def rows_of_padded_batch(attention_mask: Tensor) -> TextRows:
    """Return the rows of a batch with padding on either side.

    Args:
        attention_mask: (batch, tokens), int64: 1 for tokens, 0 for padding.
    """
    batch, tokens = attention_mask.shape
    is_token = attention_mask > 0
    row = torch.arange(batch, device=attention_mask.device)[:, None].expand(batch, tokens)
    place = torch.where(is_token, is_token.long().cumsum(1) - 1, tokens)
    lengths = None
    if not torch.compiler.is_exporting():
        lengths = is_token.sum(1).clamp(min=1).cpu()
    return TextRows(row, place, (batch, tokens), lengths)


def rows_of_documents(document_ids: Tensor) -> TextRows:
    """Return the rows of the documents of packed rows.

    Args:
        document_ids: the document of each token, counted from 1; 0 for padding, (batch, tokens).
    """
    batch, tokens = document_ids.shape
    previous = pad(document_ids[:, :-1], (1, 0))
    is_token = document_ids > 0
    starts = is_token & (document_ids != previous)
    columns = torch.arange(tokens, device=document_ids.device).expand(batch, tokens)
    first_columns = torch.where(starts, columns, 0).cummax(1).values
    row = (starts.flatten().cumsum(0) - 1).clamp(min=0).view(batch, tokens)
    place = columns - first_columns
    rows = max(1, int(starts.sum()))
    lengths = torch.zeros(rows, dtype=torch.int64, device=row.device)
    lengths.index_put_((row,), is_token.long(), accumulate=True)
    lengths = lengths.clamp(min=1).cpu()
    longest = int(lengths.max())
    return TextRows(row, torch.where(is_token, place, longest), (rows, longest), lengths)


class LayerState:
    """The state of a layer after the tokens so far.

    Attributes:
        hidden_and_cell: (1, batch, hidden) each; ``None`` for zeros, before the first token.
    """

    def __init__(self) -> None:
        self.hidden_and_cell: tuple[Tensor, Tensor] | None = None

    def select(self, rows: Tensor) -> None:
        """Keep some rows of the batch, in the given order; a row may be repeated."""
        if self.hidden_and_cell is not None:
            hidden, cell = self.hidden_and_cell
            self.hidden_and_cell = hidden[:, rows], cell[:, rows]


class LstmState:
    """The states of all layers, which generation carries from token to token.

    Args:
        num_layers: number of layers.
    """

    def __init__(self, num_layers: int) -> None:
        self.layers: Sequence[LayerState] = [LayerState() for _ in range(num_layers)]

    def select(self, rows: Tensor) -> None:
        """Keep some rows of the batch in every layer, in the given order."""
        for layer in self.layers:
            layer.select(rows)


class LstmLayer(nn.Module):
    """A layer: torch's LSTM from left to right, and dropout of its output.

    Args:
        inputs: width of the input.
        hidden_size: width of the output.
        dropout: dropout probability of the output.
    """

    def __init__(self, inputs: int, hidden_size: int, dropout: float) -> None:
        super().__init__()
        self.lstm = nn.LSTM(inputs, hidden_size, batch_first=True)
        self.dropout = Dropout(dropout)

    def forward(
        self, x: Tensor, rows: TextRows | None = None, state: LayerState | None = None
    ) -> Tensor:
        """Return the output after each token, (batch, tokens, hidden); at padding, anything.

        Args:
            x: (batch, tokens, inputs).
            rows: where texts begin and end; ``None`` where each row of the batch is one text.
            state: the state before the first tokens, which becomes the one after the last tokens;
                ``None`` for zeros.
        """
        previous_state = None if state is None else state.hidden_and_cell
        next_state = None
        if rows is None:
            output, next_state = self.lstm(x, previous_state)
        elif rows.lengths is None:
            output = rows.restore(_lstm_in_graph(self.lstm, rows.arrange(x)))
        elif state is None and not rows.is_mostly_padding:
            # Places after a text change nothing before them. On a CPU, a step of training with
            # them is three times as fast as one that leaves them out.
            in_rows, _ = self.lstm(rows.arrange(x))
            output = rows.restore(in_rows)
        else:
            texts = pack_padded_sequence(
                rows.arrange(x), rows.lengths, batch_first=True, enforce_sorted=False
            )
            packed_output, next_state = self.lstm(texts, previous_state)
            in_rows, _ = pad_packed_sequence(
                packed_output, batch_first=True, total_length=rows.shape[1]
            )
            output = rows.restore(in_rows)
        if state is not None:
            state.hidden_and_cell = next_state
        dropped: Tensor = self.dropout(output)
        return dropped


def _lstm_in_graph(lstm: nn.LSTM, x: Tensor) -> Tensor:
    """Return the outputs of an LSTM, (batch, tokens, hidden), by the operator of ONNX."""
    # The exporter would unroll torch's operator for the length of its example.
    parameters: Any = lstm
    input_weight = _reorder_gates(parameters.weight_ih_l0)
    hidden_weight = _reorder_gates(parameters.weight_hh_l0)
    biases = [_reorder_gates(bias) for bias in (parameters.bias_ih_l0, parameters.bias_hh_l0)]
    batch, tokens, _ = x.shape
    width = lstm.hidden_size
    outputs: Tensor = torch.onnx.ops.symbolic(
        "LSTM",
        [x.transpose(0, 1), input_weight[None], hidden_weight[None], torch.cat(biases)[None]],
        {"hidden_size": width},
        dtype=x.dtype,
        shape=(tokens, 1, batch, width),
        version=14,
    )
    return outputs[:, 0].transpose(0, 1)


def _reorder_gates(weight: Tensor) -> Tensor:
    """Return a weight or bias of the gates i, f, g, o in the order of ONNX: i, o, f, g."""
    i, f, g, o = weight.chunk(4)
    return torch.cat([i, o, f, g])
