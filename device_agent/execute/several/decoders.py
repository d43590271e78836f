"""Texts that have a state each: one call continues all of them by a token, and reads the weights once."""

from __future__ import annotations

from typing import Any, Collection, Dict, List, Mapping, Sequence, Union

from device_agent.contract.manifest import TOGETHER
from device_agent.execute.decoder import Decoder, Machine, bytes_of, called
from device_agent.execute.model_signature import functions_of
from device_agent.store.opened_bundle import BundleError

Logits = Union[bytearray, memoryview]


class Decoders:
    """Computes logits of several texts.

    Args:
        machine: the loaded model.
        fields: `decoder` of the checked manifest.

    Attributes:
        each: the decoder of each text; the first is that of single texts too.

    Raises:
        BundleError: the library has not the functions that the manifest says.
    """

    def __init__(self, machine: Machine, fields: Dict[str, Any]) -> None:
        count = int(fields.get("sequences", 1))
        self.each = [Decoder(machine, fields, text) for text in range(count)]
        if count > 1:
            inputs = functions_of(fields)[TOGETHER].inputs
            try:
                self._together = machine.entry(TOGETHER, inputs, range(count))
            except (RuntimeError, AttributeError, ValueError) as error:
                raise BundleError(
                    "its library has no function %s: make the bundle again" % TOGETHER
                ) from error

    def place_for(self, tokens: Sequence[int], places: Collection[int]) -> int:
        """The best place for a new text: the one whose state is right for most of its first tokens.

        Args:
            tokens: of the text.
            places: those to choose from, one or more.
        """
        return max(sorted(places), key=lambda place: self.each[place].common(tokens))

    def begin(self, place: int, tokens: Sequence[int]) -> Logits:
        """Logits behind the prompt of a new text, float32.

        What another text has in common with it at the beginning is copied, and not computed again.

        Args:
            place: of the new text; the text before is left.
            tokens: of the prompt, checked.
        """
        own = self.each[place]
        # The last token is computed for its logits.
        most = len(tokens) - 1
        known = [min(one.common(tokens), most) for one in self.each]
        best = known.index(max(known))
        # A state has fewer bytes than the weights of a few steps.
        if known[best] - known[place] >= own.worth_a_chunk:
            own.adopt(self.each[best], known[best])
        return own.logits(tokens)

    def step(self, texts: Mapping[int, Sequence[int]]) -> Dict[int, Logits]:
        """Logits behind some texts by place, float32.

        Args:
            texts: tokens by place; of each, all but the last are known, unless the model was used for
                something else meanwhile.
        """
        ready = {place: tokens for place, tokens in texts.items() if self.each[place].follows(tokens)}
        alone = {place: tokens for place, tokens in texts.items() if place not in ready}
        if len(ready) == 1:
            alone.update(ready)
            ready = {}
        made: Dict[int, Logits] = {place: self.each[place].logits(alone[place]) for place in alone}
        if ready:
            made.update(self._stepped(ready))
        return made

    def _stepped(self, texts: Mapping[int, Sequence[int]]) -> Dict[int, Logits]:
        tokens: List[int] = []
        positions: List[int] = []
        for place, decoder in enumerate(self.each):
            given = texts.get(place)
            # A place without a text takes a token for nothing, where that does not hurt.
            tokens.append(given[-1] if given is not None else 0)
            positions.append(len(given) - 1 if given is not None else decoder.place_to_spare())
        result = called(self._together, [tokens, positions])
        size = 4 * self.each[0].vocabulary
        rows = memoryview(bytes_of(result, len(self.each) * size))
        for place, given in texts.items():
            self.each[place].stepped(given[-1])
        return {place: rows[place * size : (place + 1) * size] for place in texts}
