"""Declarations of nodes, and their conversion to classes of ComfyUI's V3 and V1 node APIs.

A node is a class with the attributes of Node below. Its static method run(**inputs) returns its outputs as a tuple, or as Shown if
the node shows text.
"""

import dataclasses
import inspect

from . import errors, host


class Node:
    id = name = category = description = ""
    beside = None  # a stock node: this node takes over its category, if the stock node exists
    aliases = ()  # other names, for the search
    outputs = ()  # Output(...)
    ends = False  # an output node: runs even without connected outputs
    takes_lists = False  # every input arrives as a list
    fingerprint = None  # static method: its value changes if a file behind the inputs has changed

    @staticmethod
    def inputs():
        return []

    @staticmethod
    def run(**inputs):
        raise NotImplementedError


class Input:
    """kind: ComfyUI's name of the type. options: default, min, max, step, multiline, choices (of a combo) and so on."""

    def __init__(self, id, kind, tooltip, optional=False, **options):
        self.id, self.kind, self.tooltip, self.optional, self.options = id, kind, tooltip, optional, options


class Output:
    def __init__(self, name, kind, tooltip, listed=False):
        self.name, self.kind, self.tooltip, self.listed = name, kind, tooltip, listed


class Shown:
    """Outputs, and a text that the node shows."""

    def __init__(self, values, text):
        self.values, self.text = values, text


def call(node, inputs, node_id):
    """(outputs, ui) of one execution."""
    with host.running(node_id):
        result = errors.guard(node.run, inputs)
    if isinstance(result, Shown):
        return result.values, {"text": (result.text,)}
    return result, None


def fingerprint(node, inputs):
    """The node's fingerprint of its inputs. An error gives "": the run then reports the wrong input."""
    try:
        return node.fingerprint(**inputs)
    except Exception:
        return ""


def category(node):
    stock = getattr(host.module("nodes"), "NODE_CLASS_MAPPINGS", {}).get(node.beside)
    return getattr(stock, "CATEGORY", node.category)


def known(make, arguments):
    """make(**arguments) without the arguments that this version of ComfyUI lacks."""
    if dataclasses.is_dataclass(make):
        names = {field.name for field in dataclasses.fields(make)}
    else:
        names = set(inspect.signature(make.__init__).parameters)
    return make(**{name: value for name, value in arguments.items() if name in names})


# ---- V3 ------------------------------------------------------------------------------------------------------------


def v3_type(io, kind):
    named = {"INT": "Int", "FLOAT": "Float", "STRING": "String", "BOOLEAN": "Boolean", "COMBO": "Combo"}
    named |= {"IMAGE": "Image", "LATENT": "Latent"}
    return getattr(io, named[kind]) if kind in named else io.Custom(kind)


def v3_input(io, given):
    options = dict(given.options, id=given.id, tooltip=given.tooltip, optional=given.optional)
    if given.kind == "COMBO":
        options["options"] = options.pop("choices")()
    return known(v3_type(io, given.kind).Input, options)


def v3(node, io):
    """A ComfyNode class."""

    def define_schema(cls):
        outputs = [
            v3_type(io, o.kind).Output(display_name=o.name, tooltip=o.tooltip, is_output_list=o.listed) for o in node.outputs
        ]
        return known(
            io.Schema,
            dict(
                node_id=node.id,
                display_name=node.name,
                category=category(node),
                description=node.description,
                search_aliases=list(node.aliases),
                inputs=[v3_input(io, i) for i in node.inputs()],
                outputs=outputs,
                hidden=[io.Hidden.unique_id],
                is_input_list=node.takes_lists,
                is_output_node=node.ends,
            ),
        )

    def execute(cls, **inputs):
        values, ui = call(node, inputs, getattr(cls.hidden, "unique_id", None))
        return io.NodeOutput(*values, ui=ui)

    body = {"define_schema": classmethod(define_schema), "execute": classmethod(execute), "__module__": __name__}
    if node.fingerprint:
        body["fingerprint_inputs"] = classmethod(lambda cls, **inputs: fingerprint(node, inputs))
    return type(node.id, (io.ComfyNode,), body)


# ---- V1 ------------------------------------------------------------------------------------------------------------


def v1_input(given):
    options = dict(given.options, tooltip=given.tooltip)
    return (options.pop("choices")() if given.kind == "COMBO" else given.kind, options)


def v1(node):
    """A class for NODE_CLASS_MAPPINGS."""

    def input_types(cls):
        groups = {"required": {}, "optional": {}, "hidden": {"unique_id": "UNIQUE_ID"}}
        for given in node.inputs():
            groups["optional" if given.optional else "required"][given.id] = v1_input(given)
        return groups

    def execute(self, unique_id=None, **inputs):
        if node.takes_lists and isinstance(unique_id, list):
            unique_id = unique_id[0]
        values, ui = call(node, inputs, unique_id)
        return {"ui": ui, "result": tuple(values)} if ui else tuple(values)

    body = {
        "INPUT_TYPES": classmethod(input_types),
        "RETURN_TYPES": tuple(o.kind for o in node.outputs),
        "RETURN_NAMES": tuple(o.name for o in node.outputs),
        "OUTPUT_TOOLTIPS": tuple(o.tooltip for o in node.outputs),
        "OUTPUT_IS_LIST": tuple(o.listed for o in node.outputs),
        "INPUT_IS_LIST": node.takes_lists,
        "OUTPUT_NODE": node.ends,
        "CATEGORY": category(node),
        "DESCRIPTION": node.description,
        "SEARCH_ALIASES": list(node.aliases),
        "FUNCTION": "execute",
        "execute": execute,
        "__module__": __name__,
    }
    if node.fingerprint:
        body["IS_CHANGED"] = classmethod(lambda cls, unique_id=None, **inputs: fingerprint(node, inputs))
    return type(node.id, (), body)
