"""Tests the node pack's declarations and its other files: schemas of both APIs, example workflows, the package."""

import asyncio
import json
import tomllib

import fake_host
from checks import check


def test_schemas():
    pack = fake_host.load()
    check(not hasattr(pack, "comfy_entrypoint"), "V1 and V3 are both exported")
    ids = set(pack.NODE_CLASS_MAPPINGS)
    check(len(ids) == 13 and all(i.startswith("Davy") for i in ids), f"{ids}")
    check(set(pack.NODE_DISPLAY_NAME_MAPPINGS) == ids, "names")
    check((fake_host.PACK / pack.WEB_DIRECTORY).is_dir(), "no help pages")
    for id, made in pack.NODE_CLASS_MAPPINGS.items():
        groups = made.INPUT_TYPES()
        given = groups["required"] | groups["optional"]
        check(all(len(options["tooltip"]) > 8 for _, options in given.values()), f"{id}: an input without a tooltip")
        check(len(made.RETURN_TYPES) == len(made.RETURN_NAMES) == len(made.OUTPUT_TOOLTIPS), f"{id}: outputs")
        check(made.DESCRIPTION and made.CATEGORY and made.SEARCH_ALIASES, f"{id}: description")
        check((fake_host.PACK / f"web/docs/{id}.md").is_file(), f"{id}: no help page")
    for fields in (), ("search_aliases", "is_dev_only"):
        pack = fake_host.load(fake_host.api(fields))
        check(not hasattr(pack, "NODE_CLASS_MAPPINGS"), "V1 and V3 are both exported")
        made = asyncio.run(pack.comfy_entrypoint().get_node_list())
        schemas = [n.define_schema() for n in made]
        check({s.node_id for s in schemas} == ids, f"V3 has {[s.node_id for s in schemas]}")
        check(all(hasattr(s, "search_aliases") == bool(fields) for s in schemas), "aliases where they are known")
        info = next(n for n in made if n.__name__ == "DavyInfo").execute()
        check("davy" in info.args[0] and info.ui["text"][0] == info.args[0], "Info by V3")


def test_workflows(pack):
    """Example workflows fit the nodes: the sockets, the number of widget values, and one picture each."""
    found = sorted((fake_host.PACK / "example_workflows").glob("*.json"))
    check(len(found) >= 3, f"{len(found)} example workflows")
    used = set()
    for path in found:
        flow = json.loads(path.read_text())
        check(path.with_suffix(".jpg").is_file(), f"{path.name}: no picture")
        nodes = {n["id"]: n for n in flow["nodes"]}
        for link, source, output, target, socket, kind in flow["links"]:
            out, into = nodes[source]["outputs"][output], nodes[target]["inputs"][socket]
            check(link in out["links"] and into["link"] == link and out["type"] == kind, f"{path.name}: link {link}")
        for n in nodes.values():
            made = pack.NODE_CLASS_MAPPINGS.get(n["type"])
            check(made or not n["type"].startswith("Davy"), f"{path.name}: {n['type']}")
            if made:
                used.add(n["type"])
                groups = made.INPUT_TYPES()
                given = groups["required"] | groups["optional"]
                plain = ("INT", "FLOAT", "STRING", "BOOLEAN")
                widgets = [k for k, (kind, _) in given.items() if isinstance(kind, list) or kind in plain]
                extra = sum(bool(given[k][1].get("control_after_generate")) for k in widgets)
                check(len(n["widgets_values"]) == len(widgets) + extra, f"{path.name}: {n['type']} has {n['widgets_values']}")
                check(set(s["name"] for s in n["inputs"]) <= set(given), f"{path.name}: sockets of {n['type']}")
                check([o["type"] for o in n["outputs"]] == list(made.RETURN_TYPES), f"{path.name}: outputs of {n['type']}")
    check(used >= set(pack.NODE_CLASS_MAPPINGS) - {"DavyInfo"}, f"not in any: {set(pack.NODE_CLASS_MAPPINGS) - used}")


def test_package():
    project = tomllib.loads((fake_host.PACK / "pyproject.toml").read_text())
    check(project["project"]["dependencies"] == [] and not (fake_host.PACK / "requirements.txt").exists(), "dependencies")
    header = (fake_host.ROOT / "abi/davy.h").read_text()
    version = ".".join(header.split(f"DAVY_VERSION_{part} ")[1].split()[0] for part in ("MAJOR", "MINOR", "PATCH"))
    check(project["project"]["version"] == version, f"version {project['project']['version']}, the library's is {version}")
    check(project["tool"]["comfy"]["includes"] == ["bin"] and project["tool"]["comfy"]["PublisherId"], "registry")
    check(project["project"]["urls"]["Repository"].startswith("https://"), "the registry requires a repository")
    check(project["project"]["license"] == {"file": "LICENSE"} and (fake_host.PACK / "LICENSE").is_file(), "licence")
