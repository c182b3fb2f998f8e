"""The exports that ComfyUI reads when it loads the pack."""

from . import nodes_caption, nodes_folder, nodes_info, nodes_upscale, nodes_vae, nodes_video, schema

NODES = [
    *nodes_upscale.NODES,
    *nodes_vae.NODES,
    *nodes_video.NODES,
    *nodes_caption.NODES,
    *nodes_folder.NODES,
    *nodes_info.NODES,
]


def exports():
    """{name: value} for the pack's module: comfy_entrypoint (V3), or the two mappings of V1."""
    try:
        from comfy_api.latest import ComfyExtension, io
    except ImportError:
        return {
            "NODE_CLASS_MAPPINGS": {node.id: schema.v1(node) for node in NODES},
            "NODE_DISPLAY_NAME_MAPPINGS": {node.id: node.name for node in NODES},
        }

    class Extension(ComfyExtension):
        async def get_node_list(self):
            return [schema.v3(node, io) for node in NODES]

    return {"comfy_entrypoint": Extension}
