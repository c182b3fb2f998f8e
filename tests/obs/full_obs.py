"""Tests the plugin in the OBS application. It is installed as by `make install-obs` and driven through obs-websocket on a virtual
display.

usage: full_obs.py SOURCE BUILD WORK SHARED. Skipped if OBS, Xvfb or the Python module websocket is missing."""

import base64
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import time

PORT = 24455
passed = failed = skipped = 0


def check(holds, what):
    global passed, failed
    if holds:
        passed += 1
    else:
        failed += 1
        print("FAIL", what, flush=True)


def skip(why):
    global skipped
    skipped += 1
    print("skipped:", why, flush=True)


def done():
    print(f"{passed} passed, {failed} failed" + (f", {skipped} skipped" if skipped else ""))
    sys.exit(failed > 0)


class Obs:
    """Requests and events of obs-websocket, protocol 5."""

    def __init__(self):
        self.socket = websocket.create_connection(f"ws://127.0.0.1:{PORT}", timeout=60)
        self.events = []
        self.number = 0
        json.loads(self.socket.recv())  # hello
        self.socket.send(json.dumps({"op": 1, "d": {"rpcVersion": 1}}))
        while json.loads(self.socket.recv())["op"] != 2:
            pass

    def __call__(self, kind, **data):
        self.number += 1
        self.socket.send(json.dumps({"op": 6, "d": {"requestType": kind, "requestId": str(self.number), "requestData": data}}))
        while True:
            message = json.loads(self.socket.recv())
            if message["op"] == 5:
                self.events.append(message["d"])
            elif message["op"] == 7:
                answer = message["d"]
                if not answer["requestStatus"]["result"]:
                    raise RuntimeError(f"{kind}: {answer['requestStatus']}")
                return answer.get("responseData") or {}

    def vendor(self, kind, **data):
        return self("CallVendorRequest", vendorName="davy", requestType=kind, requestData={"source": "", **data})["responseData"]


def settings(work):
    """Writes settings that keep OBS from asking questions at its first start. Returns the environment of its process."""
    config = work / "config"
    folder = config / "obs-studio"
    folder.mkdir(parents=True)
    (folder / "global.ini").write_text(
        "[General]\nFirstRun=true\nEnableAutoUpdates=false\nLastVersion=486539266\n[OBSWebSocket]\nFirstLoad=false\n"
        f"ServerEnabled=true\nServerPort={PORT}\nAuthRequired=false\nAlertsEnabled=false\n")
    runtime = work / "runtime"
    runtime.mkdir(mode=0o700)
    home = work / "home"
    home.mkdir()
    keep = {k: v for k, v in os.environ.items() if not k.startswith(("DAVY_", "XDG_", "DISPLAY"))}
    return {**keep, "HOME": str(home), "XDG_CONFIG_HOME": str(config), "XDG_RUNTIME_DIR": str(runtime),
            "LIBGL_ALWAYS_SOFTWARE": "1", "QT_QPA_PLATFORM": "xcb", "LC_ALL": "C.UTF-8"}


def connect(process):
    for _ in range(120):
        try:
            return Obs()
        except (OSError, websocket.WebSocketException):
            if process.poll() is not None:
                return None
            time.sleep(0.5)
    return None


def until(seconds, holds):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if holds():
            return True
        time.sleep(0.3)
    return False


def screenshot(obs, source, file):
    data = obs("GetSourceScreenshot", sourceName=source, imageFormat="png")["imageData"]
    file.write_bytes(base64.b64decode(data.split(",", 1)[1]))
    raw = file.read_bytes()
    return int.from_bytes(raw[16:20], "big"), int.from_bytes(raw[20:24], "big")


def size_in_scene(obs, name):
    item = obs("GetSceneItemId", sceneName="davy", sourceName=name)["sceneItemId"]
    t = obs("GetSceneItemTransform", sceneName="davy", sceneItemId=item)["sceneItemTransform"]
    return round(t["sourceWidth"]), round(t["sourceHeight"])


def upscaling(obs, source, work):
    picture = source / "packaging/examples/cat.png"
    size = tuple(int.from_bytes(picture.read_bytes()[i:i + 4], "big") for i in (16, 20))
    obs("CreateScene", sceneName="davy")
    obs("SetCurrentProgramScene", sceneName="davy")
    obs("CreateInput", sceneName="davy", inputName="cat", inputKind="image_source", inputSettings={"file": str(picture)})
    check(until(20, lambda: screenshot(obs, "cat", work / "plain.png") == size), "the picture is shown")
    kinds = obs("GetSourceFilterDefaultSettings", filterKind="davy_upscale_filter")["defaultFilterSettings"]
    check(kinds.get("scale") == 2, "the filter has defaults")
    obs("CreateSourceFilter", sourceName="cat", filterName="davy", filterKind="davy_upscale_filter",
        filterSettings={"budget_ms": 10000})
    twice = (2 * size[0], 2 * size[1])
    check(until(30, lambda: size_in_scene(obs, "cat") == twice), "the picture is twice as large")
    check(until(60, lambda: any(f["done"] > 0 for f in obs.vendor("GetStatus")["filters"])), "a frame is done")
    filters = obs.vendor("GetStatus")["filters"]
    check(len(filters) == 1 and filters[0]["source"] == "cat" and filters[0]["kind"] == "davy_upscale_filter" and
          filters[0]["level"] == "ok" and filters[0]["ms"] > 0, f"the filter's state: {filters}")
    screenshot(obs, "davy", work / "upscaled.png")
    obs("SetSourceFilterSettings", sourceName="cat", filterName="davy", filterSettings={"scale": 4})
    four = (4 * size[0], 4 * size[1])
    check(until(30, lambda: size_in_scene(obs, "cat") == four), "and then four times")
    obs("SetSourceFilterEnabled", sourceName="cat", filterName="davy", filterEnabled=False)
    check(until(10, lambda: size_in_scene(obs, "cat") == size), "switched off it is as it was")
    screenshot(obs, "cat", work / "off.png")
    check((work / "off.png").read_bytes() == (work / "plain.png").read_bytes(), "to the byte")
    obs("RemoveSourceFilter", sourceName="cat", filterName="davy")


def latents(obs, shared):
    """Another program (this test) gets a VAE filter's latent."""
    weights = shared / "models/tae/taef2_encoder.safetensors"
    picture = shared / "golden/davy-tiny-vlm/case00.png"
    if not weights.is_file() or not picture.is_file():
        skip("latents: no models/tae")
        return
    size = [int.from_bytes(picture.read_bytes()[i:i + 4], "big") for i in (20, 16)]
    obs("CreateInput", sceneName="davy", inputName="seen", inputKind="image_source", inputSettings={"file": str(picture)})
    check(obs.vendor("GetLatent", source="seen").get("found") is False, "no latent without a filter")
    obs("CreateSourceFilter", sourceName="seen", filterName="vae", filterKind="davy_vae_filter",
        filterSettings={"model": str(weights), "budget_ms": 10000})
    check(until(60, lambda: obs.vendor("GetLatent", source="seen").get("found")), "a latent")
    latent = obs.vendor("GetLatent", source="seen")
    shape = [axis["size"] for axis in latent.get("shape", [])]
    check(len(shape) == 3 and [-(-s // 8) for s in size] == shape[:2] and latent.get("dtype") == "F32", f"its shape: {shape}")
    check(len(base64.b64decode(latent.get("data", ""))) == 4 * shape[0] * shape[1] * shape[2], "all bytes of the latent")
    obs("RemoveInput", inputName="seen")


def captions(obs, shared):
    model = shared / "models/davy-tiny-vlm"
    if not model.is_dir():
        skip("captions: no models/davy-tiny-vlm")
        return
    picture = shared / "golden/davy-tiny-vlm/case00.png"
    obs("CreateInput", sceneName="davy", inputName="scene", inputKind="image_source", inputSettings={"file": str(picture)})
    obs("CreateInput", sceneName="davy", inputName="words", inputKind="text_ft2_source_v2", inputSettings={"text": "?"})
    obs("CreateSourceFilter", sourceName="scene", filterName="look", filterKind="davy_caption_filter",
        filterSettings={"model_path": str(model), "prompt": "Describe the image.", "every": False, "target_source": "words"})
    check(obs.vendor("GetCaption", source="scene").get("text") == "", "no caption before the first request")
    until(20, lambda: obs.vendor("CaptionNow", source="scene").get("accepted") and
          obs.vendor("GetCaption", source="scene").get("text"))
    answer = obs.vendor("GetCaption", source="scene")
    check(len(answer.get("text", "")) > 10 and answer.get("source") == "scene", f"a caption: {answer}")
    check(obs("GetInputSettings", inputName="words")["inputSettings"].get("text") == answer["text"], "the text source has it")
    ready = [e["eventData"] for e in obs.events if e["eventType"] == "VendorEvent"]
    check(any(e["eventType"] == "CaptionReady" and e["eventData"]["text"] == answer["text"] for e in ready), "and an event")
    print("caption:", answer["text"])


def strings(source):
    """The locale file has all texts that the plugin uses, and no others."""
    asked = set()
    for file in (source / "plugins/obs").glob("*.c"):
        asked |= set(re.findall(r'"(Davy\.[A-Za-z0-9.]+)"', file.read_text()))
    there = set(re.findall(r"^(Davy\.[A-Za-z0-9.]+)=\"[^\"]+\"$", (source / "plugins/obs/data/locale/en-US.ini").read_text(), re.M))
    check(asked == there, f"missing texts: {asked - there}, unused texts: {there - asked}")


def main():
    source, build, work, shared = (pathlib.Path(a).resolve() for a in sys.argv[1:5])
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    environment = settings(work)
    installer = ["sh", str(source / "packaging/install-obs.sh")]
    subprocess.run([*installer, "install", str(build), "user"], check=True, env=environment)
    installed = {p.name for p in (work / "config/obs-studio/plugins/davy-obs/data").iterdir()}
    data = {p.name for p in (source / "plugins/obs/data").iterdir()}
    check(data <= installed, f"installed: {installed}, missing: {data - installed}")
    log = work / "obs.log"
    with open(log, "wb") as out:
        process = subprocess.Popen(["xvfb-run", "-a", "-s", "-screen 0 1280x800x24", "obs", "--multi", "--unfiltered_log"],
                                   stdout=out, stderr=subprocess.STDOUT, env=environment, start_new_session=True)
    try:
        obs = connect(process)
        check(obs is not None, "OBS starts")
        if obs is not None:
            status = obs.vendor("GetStatus")
            check(status.get("problem") == "" and status.get("version"), f"libdavy is loaded: {status}")
            upscaling(obs, source, work)
            latents(obs, shared)
            captions(obs, shared)
            obs.socket.close()
    finally:
        subprocess.run(["pkill", "-INT", "-s", str(process.pid), "-x", "obs"], check=False)
        try:
            process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
    text = log.read_text(errors="replace")
    for scope in re.findall(r"davy_filter_\w+: .*", text):  # OBS's own profile of its graphics thread
        print(scope)
    leaks = re.search(r"Number of memory leaks: (\d+)", text)
    check(leaks is not None and leaks.group(1) == "0", f"leaks: {leaks and leaks.group(0)}")
    subprocess.run([*installer, "uninstall", str(build), "user"], check=True, env=environment)
    left = [p for p in (work / "config").rglob("*") if "davy" in p.name]
    check(not left, f"left after the uninstall: {left}")
    done()


strings(pathlib.Path(sys.argv[1]))
if not shutil.which("obs") or not shutil.which("xvfb-run"):
    skip("no obs or xvfb-run")
    done()
try:
    import websocket
except ImportError:
    skip("no Python module websocket")
    done()
main()
