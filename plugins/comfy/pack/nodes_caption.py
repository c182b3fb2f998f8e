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
TOGETHER = 32  # pictures in one call


class LoadCaptioner(Node):
    id = "DavyCaptionModelLoader"
    name = "Load Captioner (davy)"
    category = "davy/loaders"
    description = (
        "Loads a vision-language model from models/LLM or models/davy. It is a folder in the format of Hugging Face "
        "(config.json and the weights), or a GGUF file with its mmproj file in the same folder."
    )
    aliases = ("load caption model", "load vlm", *ALIASES)
    outputs = [Output("captioner", "DAVY_CAPTIONER", "For Caption (davy) and Caption Batch (davy).")]

    @staticmethod
    def inputs():
        return [
            Input("model_name", "COMBO", "A folder or a GGUF file in models/LLM or models/davy.",
                  choices=lambda: sorted(files.caption_models()) or ["(put a model into models/LLM)"]),
            Input("precision", "COMBO", "Number format. auto: bf16 on a GPU, the weights' own format on the CPU.",
                  choices=lambda: ["auto", "fp32", "bf16", "fp16", "int8", "int4"], default="auto", advanced=True),
            Input("device", "COMBO", "default: ComfyUI's device. cpu: keeps the GPU free.",
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
        Input("task", "COMBO", "The kind of text. own prompt: uses the prompt below.", choices=lambda: list(TASKS),
              default="describe"),
        Input("prompt", "STRING", "The question. Used only if the task is own prompt.", default="", multiline=True,
              placeholder="Your own prompt", dynamic_prompts=False),
    ]


def answer_inputs():
    return [
        Input("max_tokens", "INT", "The maximum length of the answer, in tokens.", default=256, min=1, max=8192),
        Input("temperature", "FLOAT", "0: always the most likely token, whatever the seed. Higher: more varied answers.",
              default=0.0, min=0.0, max=5.0, step=0.05),
        Input("top_p", "FLOAT", "Only if temperature is above 0: draws from the most likely tokens with this share of the "
              "probability.", default=1.0, min=0.01, max=1.0, step=0.01, advanced=True),
        Input("repeat_penalty", "FLOAT", "Above 1: makes tokens less likely that were used before.", default=1.0, min=1.0, max=2.0,
              step=0.01, advanced=True),
        Input("seed", "INT", "Only if temperature is above 0: the same seed gives the same answer.", default=0, min=0,
              max=(1 << 64) - 1, control_after_generate=True),
    ]


def looking_inputs():
    return [
        Input("max_tiles", "INT", "For models that also look at parts of a picture. 0: the model's own number of parts. 1: only "
              "the whole picture, which is faster and shows less detail.", default=0, min=0, max=64, optional=True, advanced=True),
        Input("system_prompt", "STRING", "Instructions for the model's behaviour. Empty: the model's own.", default="",
              multiline=True, optional=True, advanced=True),
    ]  # fmt: skip


def question(task, prompt):
    text = TASKS.get(task) or prompt.strip()
    if not text:
        raise errors.Error("the prompt is empty, but the task is own prompt: write a prompt or choose another task")
    return text


def host_pictures(image):
    """The pictures of a batch, each [H, W, C] in host memory."""
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
    description = "Writes captions, descriptions or tags for pictures. A batch gives a list with one text for each picture."
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
        "Asks another question about the same picture. The earlier turns are still in the model's memory, so only the new "
        "question and its answer take time."
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
            Input("question", "STRING", "The next question about the picture.", default="What else is in the image?",
                  multiline=True, dynamic_prompts=False),
            *answer_inputs(),
        ]

    @staticmethod
    def run(conversation, question, **settings):
        first = conversation.turns[0][1]
        return conversation.ask(question, talk.Settings(system=first.system, max_tiles=first.max_tiles, **settings))


NODES = [LoadCaptioner, Caption, AskAgain]
