"""Conversations about a picture. The earlier turns stay in the model's cache while the model is in memory. If they are no longer
there, or the conversation has branched in the meantime, the earlier questions are asked again."""

import ctypes
import dataclasses
import weakref

from . import errors, host, residency, tensors
from .model import POLL_NS
from ..davy import abi
from ..davy.abi import ref

LIVE = 2  # dialogues that a model keeps; each holds the memory of a whole context
WORKSPACE = 1 << 30  # bytes requested from ComfyUI besides the weights; the library can work with less


@dataclasses.dataclass(frozen=True)
class Settings:
    """Settings of an answer. All turns of a conversation share `system` and `max_tiles`."""

    system: str = ""
    max_tokens: int = 256
    temperature: float = 0.0
    top_p: float = 1.0
    repeat_penalty: float = 1.0
    seed: int = 0
    max_tiles: int = 0

    def params(self, prompt=None):
        return abi.CaptionParams(
            prompt=abi.text(prompt),
            system=abi.text(self.system) if self.system else None,
            max_tokens=self.max_tokens,
            temperature=self.temperature,
            top_p=self.top_p,
            repeat_penalty=self.repeat_penalty,
            seed=self.seed,
            max_tiles=self.max_tiles,
        )


def prepare(captioner):
    captioner.engine.budget()
    residency.acquire(captioner.resident, captioner.engine, WORKSPACE)


def picture_view(picture):
    """A davy_tensor of one picture [H, W, C] in host memory."""
    return tensors.view(picture, abi.Layout.HWC)


def check_answered(info, picture=""):
    """Raises an error if the model wrote only thoughts and no answer."""
    if info.flags & abi.DialogueFlag.UNANSWERED:
        tokens = info.generated_tokens
        raise errors.Error(f"{picture}the answer ended inside the model's thoughts after {tokens} tokens: raise max_tokens")


class Live:
    """A dialogue of the library, with its picture (root) and its turns so far (said)."""

    def __init__(self, captioner, settings):
        self.key = self.key_of(settings)
        self.root, self.said = lambda: None, []  # root: a weak reference
        self.handle, api = abi.Handle(), captioner.lib.api
        captioner.lib.check(api.dialogue_open(captioner.handle, ref(settings.params()), ref(self.handle)))
        self.close = weakref.finalize(self, api.dialogue_release, self.handle)
        self.close.atexit = False

    @staticmethod
    def key_of(settings):
        """A dialogue can take another picture if its key stays the same."""
        return settings.system, settings.max_tiles


class Pool:
    """The live dialogues of a model; the last used one is at the end. A new dialogue costs far more than a new picture in an old
    one."""

    def __init__(self):
        self.lives = []

    def drop(self, live):
        self.lives = [other for other in self.lives if other is not live]
        live.close()

    def clear(self):
        for live in self.lives:
            live.close()
        self.lives = []

    def about(self, root):
        return next((live for live in self.lives if live.root() is root), None)

    def start(self, captioner, root, settings):
        """A dialogue about the root's picture, without turns. It reuses the root's own dialogue or the oldest one, or opens one."""
        lib, live = captioner.lib, self.about(root)
        if live is None and len(self.lives) >= LIVE:
            live = self.lives[0]
        if live is not None and live.key != Live.key_of(settings):
            self.drop(live)
            live = None
        if live is None:
            live = Live(captioner, settings)
        else:
            self.lives.remove(live)
            lib.check(lib.api.dialogue_rewind(live.handle, 0))
        live.root, live.said = weakref.ref(root), []
        self.lives.append(live)
        lib.check(lib.api.dialogue_add_image(live.handle, ref(picture_view(root.picture))))
        return live


class Root:
    """The picture of one or more conversations."""

    def __init__(self, captioner, picture):
        self.captioner, self.picture = captioner, picture
        if captioner.pool is None:
            captioner.pool = Pool()

    @property
    def live(self):
        return self.captioner.pool.about(self)

    def at(self, turns, settings):
        """A dialogue whose turns are the first of these turns and no others, as many as the live dialogue already has."""
        pool, lib, live = self.captioner.pool, self.captioner.lib, self.live
        same = 0
        while live and same < min(len(live.said), len(turns)) and live.said[same] == turns[same]:
            same += 1
        if same == 0:
            return pool.start(self.captioner, self, turns[0][1] if turns else settings)
        if same < len(live.said):
            lib.check(lib.api.dialogue_rewind(live.handle, same))
            del live.said[same:]
        pool.lives.sort(key=lambda other: other is live)
        return live

    def turn(self, live, question, settings, bar):
        """Asks a question and returns the answer. An error or an interrupt closes the dialogue."""
        lib, job = self.captioner.lib, abi.Handle()
        try:
            lib.check(lib.api.dialogue_add_text(live.handle, abi.Role.USER, abi.text(question)))
            lib.check(lib.api.dialogue_generate(live.handle, ref(settings.params()), None, ref(job)))
            try:
                listen(lib, live, settings, bar)
                lib.check_job(job, lib.api.job_wait(job, (1 << 64) - 1))
            finally:
                lib.api.job_release(job)
            text, info = abi.Handle(), abi.DialogueInfo()
            lib.check(lib.api.dialogue_info(live.handle, ref(info)))
            check_answered(info)
            lib.check(lib.api.dialogue_text(live.handle, ref(text)))
            live.said.append((question, settings))
            return lib.take_text(text).strip()
        except BaseException:
            self.captioner.pool.drop(live)
            raise


def listen(lib, live, settings, bar):
    """Follows a turn to its end: shows the text on the node and counts tokens on the bar."""
    event, pieces = abi.TokenEvent(), []
    while True:
        result = lib.check(lib.api.dialogue_read(live.handle, ref(event), POLL_NS))
        host.check_interrupt()
        if result == abi.Result.END:
            return
        if result == abi.Result.OK and event.kind == abi.TokenKind.TEXT:
            pieces.append(event.text.decode("utf-8", "replace"))
            host.show_text("".join(pieces))
            bar.at(min(len(pieces), settings.max_tokens - 1))


class Conversation:
    """The value of DAVY_CONVERSATION: a picture and the turns so far. ask() returns a new one and leaves this one unchanged."""

    def __init__(self, root, turns=()):
        self.root, self.turns = root, turns  # turns: (question, settings)

    def ask(self, question, settings):
        """Returns (answer, conversation with this turn)."""
        root = self.root
        if not question.strip():
            raise errors.Error("there is no question: write one in `question`")
        prepare(root.captioner)
        live = root.at(self.turns, settings)
        for earlier in self.turns[len(live.said) :]:
            root.turn(live, *earlier, host.Progress(earlier[1].max_tokens))
        bar = host.Progress(settings.max_tokens)
        answer = root.turn(live, question, settings, bar)
        bar.at(settings.max_tokens)
        return answer, Conversation(root, (*self.turns, (question, settings)))


def captions(captioner, pictures, prompt, settings, on_progress=None):
    """The answers about several pictures ([H, W, C] davy_tensors), which the library may compute together."""
    lib, n = captioner.lib, len(pictures)
    views = (ctypes.POINTER(abi.Tensor) * n)(*(ctypes.pointer(p) for p in pictures))
    answers, job = (ctypes.c_void_p * n)(), abi.Handle()
    prepare(captioner)
    lib.check(lib.api.caption(captioner.handle, n, views, ref(settings.params(prompt)), None, ref(job), answers))
    captioner.finish(job, on_progress)
    infos = [abi.DialogueInfo() for _ in answers]
    for answer, info in zip(answers, infos):
        lib.check(lib.api.caption_info(answer, ref(info)))
    texts = [lib.take_text(answer).strip() for answer in answers]
    for i, info in enumerate(infos):
        check_answered(info, f"picture {i + 1} of {n}: ")
    return texts
