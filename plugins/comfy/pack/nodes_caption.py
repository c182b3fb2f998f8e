"""Load Captioner, Caption, Ask Again."""

from . import engine, errors, files, host, model, talk, tensors
from .schema import Input, Node, Output
from ..davy import abi

ALIASES = (
    "caption", "describe", "vlm", "image to text", "interrogate", "florence", "qwen vl", "joycaption", "smolvlm", "llava",
    "blip",
)  # fmt: skip
TASKS = {
    "describe": "Describe this image in one paragraph.",
    "short caption": "Write a one-sentence caption for this image.",
    "detailed description": "Describe this image in detail: subjects, setting, composition, light, colours and style.",
    "tags": "List tags for this image, separated by commas, the most important first. Write nothing else.",
    "text in the image": "Write down the text that is in this image, and nothing else.",
    "own prompt": None,
}
TOGETHER = 32  # pictures to one call


class LoadCaptioner(Node):
    id = "DavyCaptionModelLoader"
    name = "Load Captioner (davy)"
    category = "davy/loaders"
    description = (
        "Opens a model that sees and writes, from models/LLM or models/davy: a folder as Hugging Face has them "
        "(config.json beside the weights), or a GGUF file with its mmproj beside it."
    )
    aliases = ("load caption model", "load vlm", *ALIASES)
    outputs = [Output("captioner", "DAVY_CAPTIONER", "For Caption (davy) and Caption Batch (davy).")]

    @staticmethod
    def inputs():
        return [
            Input("model_name", "COMBO", "A folder or a GGUF file below models/LLM or models/davy.",
                  choices=lambda: sorted(files.caption_models()) or ["(put a model into models/LLM)"]),
            Input("precision", "COMBO", "How it computes. auto: bf16 on a GPU, on the CPU as the weights are stored.",
                  choices=lambda: ["auto", "fp32", "bf16", "fp16", "int8", "int4"], default="auto", advanced=True),
            Input("device", "COMBO", "default: where ComfyUI computes. cpu: leaves the GPU alone.",
                  choices=lambda: engine.CHOICES, default="default", advanced=True),
        ]

    @staticmethod
    def run(model_name, precision="auto", device="default"):
        return (model.open(abi.Task.CAPTION, files.caption_model(model_name), precision, device),)

    @staticmethod
    def fingerprint(model_name, **others):
        return repr((model.stamps(files.caption_model(model_name)), sorted(others.items())))


def prompt_inputs():
    return [
        Input("task", "COMBO", "What to write. own prompt: what the prompt below says.", choices=lambda: list(TASKS),
              default="describe"),
        Input("prompt", "STRING", "The question, with the task own prompt.", default="", multiline=True,
              placeholder="Your own prompt", dynamic_prompts=False),
    ]


def answer_inputs():
    return [
        Input("max_tokens", "INT", "The answer ends here at the latest.", default=256, min=1, max=8192),
        Input("temperature", "FLOAT", "0: always the likeliest word, so the seed does not matter. Higher: freer.", default=0.0,
              min=0.0, max=5.0, step=0.05),
        Input("top_p", "FLOAT", "With a temperature: only words that make up this share of what is likely.", default=1.0,
              min=0.01, max=1.0, step=0.01, advanced=True),
        Input("repeat_penalty", "FLOAT", "Above 1: words that were used are less likely.", default=1.0, min=1.0, max=2.0,
              step=0.01, advanced=True),
        Input("seed", "INT", "With a temperature: the same seed gives the same answer.", default=0, min=0, max=(1 << 64) - 1,
              control_after_generate=True),
    ]


def looking_inputs():
    return [
        Input("max_tiles", "INT", "Of models that look at a picture in parts too. 0: as many as the model likes. 1: the whole "
              "picture only, which is faster and sees less.", default=0, min=0, max=64, optional=True, advanced=True),
        Input("system_prompt", "STRING", "How the model should behave. Empty: what its authors say.", default="",
              multiline=True, optional=True, advanced=True),
    ]  # fmt: skip


def question(task, prompt):
    text = TASKS.get(task) or prompt.strip()
    if not text:
        raise errors.Error("the task is own prompt, but the prompt is empty: write one or choose another task")
    return text


def host_pictures(image):
    """The pictures of a batch, each [H, W, C] in the host's memory."""
    there = image.cpu() if image.device.type != "cpu" else image
    if there.requires_grad:
        there = there.detach()
    if str(there.dtype) not in tensors.DTYPES:
        there = there.float()
    return [there[i] for i in range(there.shape[0])]


class Caption(Node):
    id = "DavyCaptionImage"
    name = "Caption (davy)"
    category = "davy/caption"
    description = "Writes about pictures: captions, descriptions, tags. A batch gives a list, one text for each picture."
    aliases = ALIASES
    outputs = [
        Output("text", "STRING", "The answers, one for each picture.", listed=True),
        Output("conversation", "DAVY_CONVERSATION", "For Ask Again (davy), one for each picture.", listed=True),
    ]

    @staticmethod
    def inputs():
        return [
            Input("captioner", "DAVY_CAPTIONER", "From Load Captioner (davy)."),
            Input("image", "IMAGE", "The pictures."),
            *prompt_inputs(),
            *answer_inputs(),
            *looking_inputs(),
        ]

    @staticmethod
    def run(captioner, image, task="describe", prompt="", system_prompt="", **settings):
        asked = question(task, prompt)
        how = talk.Settings(system=system_prompt.strip(), **settings)
        pictures = host_pictures(image)
        if len(pictures) == 1:
            answer, conversation = talk.Conversation(talk.Root(captioner, pictures[0])).ask(asked, how)
            return [answer], [conversation]
        answers, bar = [], host.Progress(100 * len(pictures))
        for first in range(0, len(pictures), TOGETHER):
            part = pictures[first : first + TOGETHER]
            views = [talk.picture_view(p) for p in part]
            answers += talk.captions(
                captioner, views, asked, how, lambda done: bar.at(100 * (first + len(part) * done))  # noqa: B023
            )
        bar.at(100 * len(pictures))
        return answers, [talk.Conversation(talk.Root(captioner, p), ((asked, how),)) for p in pictures]


class AskAgain(Node):
    id = "DavyCaptionAsk"
    name = "Ask Again (davy)"
    category = "davy/caption"
    description = (
        "A further question about the same picture. What was said before is still in the model's memory, so that only "
        "the new question and its answer cost time."
    )
    aliases = ("follow up", "chat", "vqa", "visual question answering", "question", *ALIASES)
    outputs = [
        Output("text", "STRING", "The answer."),
        Output("conversation", "DAVY_CONVERSATION", "For the next Ask Again (davy)."),
    ]

    @staticmethod
    def inputs():
        return [
            Input("conversation", "DAVY_CONVERSATION", "From Caption (davy) or another Ask Again (davy)."),
            Input("question", "STRING", "What you want to know.", default="What else is in the image?", multiline=True,
                  dynamic_prompts=False),
            *answer_inputs(),
        ]

    @staticmethod
    def run(conversation, question, **settings):
        first = conversation.turns[0][1]
        return conversation.ask(question, talk.Settings(system=first.system, max_tiles=first.max_tiles, **settings))


NODES = [LoadCaptioner, Caption, AskAgain]
