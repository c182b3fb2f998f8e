"""Tests the nodes in a real ComfyUI on the CPU, through its HTTP API.

    DAVY_COMFYUI=/path/to/ComfyUI DAVY_LIBRARY=... python server.py WORK_FOLDER [PROMPTS]

Python needs ComfyUI's requirements. The test runs one workflow from a picture to a caption, errors and interrupts. Then it runs
many prompts (100) with interrupts in between; the server's memory must not grow. Prints `N passed, N failed` last.
"""

import json
import os
import pathlib
import random
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request

import stock
from stock import COMFYUI, ROOT, check

REQUEST_TIMEOUT = 30


class Server:
    def __init__(self, base):
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            self.port = s.getsockname()[1]
        self.log = open(base / "server.log", "w")
        command = [sys.executable, "main.py", "--cpu", "--disable-auto-launch", "--disable-api-nodes", "--listen", "127.0.0.1"]
        command += ["--port", str(self.port), "--base-directory", str(base), "--database-url", "sqlite:///:memory:"]
        self.process = subprocess.Popen(
            command, cwd=COMFYUI, stdout=self.log, stderr=subprocess.STDOUT, env=dict(os.environ, PYTHONDONTWRITEBYTECODE="1")
        )
        for _ in range(240):
            try:
                self.get("system_stats")
                return
            except OSError:
                if self.process.poll() is not None:
                    break
                time.sleep(0.5)
        sys.exit(f"ComfyUI did not start: {base / 'server.log'}")

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(30)

    def get(self, path):
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/{path}", timeout=REQUEST_TIMEOUT) as answer:
            return json.loads(answer.read())

    def post(self, path, body=None):
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}/{path}", json.dumps(body or {}).encode())
        request.add_header("Content-Type", "application/json")
        with urllib.request.urlopen(request, timeout=REQUEST_TIMEOUT) as answer:
            return json.loads(answer.read() or b"{}")

    def queue(self, prompt):
        try:
            return self.post("prompt", {"prompt": prompt})["prompt_id"]
        except urllib.error.HTTPError as error:
            sys.exit(f"the prompt was refused: {error.read().decode()[:2000]}")

    def result(self, prompt_id, timeout=300):
        """Waits until a prompt has ended. Returns its entry in the history."""
        end = time.monotonic() + timeout
        while time.monotonic() < end:
            entry = self.get(f"history/{prompt_id}").get(prompt_id)
            if entry:
                return entry
            time.sleep(0.02)
        sys.exit("a prompt did not end")

    def run(self, prompt):
        return self.result(self.queue(prompt))

    def resident(self):
        """Bytes of the server's resident memory."""
        for line in open(f"/proc/{self.process.pid}/status"):
            if line.startswith("VmRSS"):
                return int(line.split()[1]) * 1024


def messages(entry, kind):
    return [data for name, data in entry["status"]["messages"] if name == kind]


def texts(entry, node):
    return entry["outputs"].get(node, {}).get("text", [])


def whole(seed=0, width=160, question="Describe the image."):
    """load image -> encode -> decode -> upscale -> caption -> save"""
    return {
        "1": {"class_type": "LoadImage", "inputs": {"image": "cat.png"}},
        "2": {"class_type": "ImageScale", "inputs": {"image": ["1", 0], "upscale_method": "area", "width": width,
                                                      "height": 96, "crop": "center"}},
        "3": {"class_type": "DavyVAELoader", "inputs": {"vae_name": "taesd", "precision": "auto", "device": "default"}},
        "4": {"class_type": "DavyVAEEncode", "inputs": {"pixels": ["2", 0], "vae": ["3", 0], "sample": False, "seed": seed,
                                                         "tile_size": 0, "overlap": 0}},
        "5": {"class_type": "DavyVAEDecode", "inputs": {"samples": ["4", 0], "vae": ["3", 0], "tile_size": 0, "overlap": 0}},
        "6": {"class_type": "DavyUpscaleModelLoader", "inputs": {"model_name": "davy-live x2 (built in)", "precision": "auto",
                                                                  "device": "default"}},
        "7": {"class_type": "DavyUpscaleWithModel", "inputs": {"upscaler": ["6", 0], "image": ["5", 0], "tile_size": 0,
                                                                "overlap": 0}},
        "8": {"class_type": "DavyCaptionModelLoader", "inputs": {"model_name": "davy-tiny-vlm", "precision": "auto",
                                                                  "device": "default"}},
        "9": {"class_type": "DavyCaptionImage", "inputs": {"captioner": ["8", 0], "image": ["7", 0], "task": "own prompt",
              "prompt": question, "max_tokens": 24, "temperature": 0.7, "top_p": 1.0, "repeat_penalty": 1.0, "seed": seed}},
        "10": {"class_type": "DavyCaptionAsk", "inputs": {"conversation": ["9", 1], "question": "What colour is it?",
               "max_tokens": 8, "temperature": 0.0, "top_p": 1.0, "repeat_penalty": 1.0, "seed": 0}},
        "11": {"class_type": "SaveImage", "inputs": {"images": ["7", 0], "filename_prefix": "davy"}},
        "12": {"class_type": "PreviewAny", "inputs": {"source": ["9", 0]}},
        "13": {"class_type": "PreviewAny", "inputs": {"source": ["10", 0]}},
    }  # fmt: skip


def large():
    """A prompt that takes many seconds: a picture of 3 megapixels through a large network."""
    return {
        "1": {"class_type": "EmptyImage", "inputs": {"width": 2000, "height": 1500, "batch_size": 1, "color": 255}},
        "2": {"class_type": "DavyUpscaleModelLoader",
              "inputs": {"model_name": "RealESRGAN_x4plus_anime_6B.safetensors", "precision": "fp32", "device": "default"}},
        "3": {"class_type": "DavyUpscaleWithModel", "inputs": {"upscaler": ["2", 0], "image": ["1", 0], "tile_size": 0,
                                                                "overlap": 0}},
        "4": {"class_type": "PreviewImage", "inputs": {"images": ["3", 0]}},
    }  # fmt: skip


def workflow(server):
    entry = server.run(whole())
    check(entry["status"]["status_str"] == "success", f"the whole workflow: {entry['status']['status_str']}")
    check(entry["outputs"]["11"]["images"], "it saved a picture")
    check(bool(texts(entry, "12")) and bool(texts(entry, "13")), f"it wrote: {texts(entry, '12')} {texts(entry, '13')}")
    again = server.run(whole())
    done = messages(again, "execution_cached")[0]["nodes"]
    check(set("3 4 5 6 7 8 9 10".split()) <= set(done), f"unchanged nodes are not run again: {sorted(done, key=int)}")
    other = server.run(whole(seed=1))
    first = server.run(whole(seed=0))
    check(texts(first, "12") == texts(entry, "12"), "the same seed gives the same caption")
    check(texts(other, "12") != texts(entry, "12"), "another seed gives another caption")


def info(server):
    text = texts(server.run({"1": {"class_type": "DavyInfo", "inputs": {}}}), "1")
    check("davy" in text[0] and "cpu" in text[0], f"Info: {text[0].splitlines()[:1]}")


def errors(server, base):
    """Each error is one sentence with the file's name."""
    bad = base / "models/upscale_models/broken.safetensors"
    bad.write_bytes(b"\x10\0\0\0\0\0\0\0not json at all.")
    prompt = large()
    prompt["2"]["inputs"]["model_name"] = "broken.safetensors"
    failed = messages(server.run(prompt), "execution_error")
    said = failed[0]["exception_message"].strip() if failed else ""
    check("broken.safetensors" in said and "\n" not in said, f"{failed and failed[0]['exception_type']}: {said}")
    bad.unlink()
    prompt = whole()
    prompt["9"]["inputs"]["prompt"] = " "
    failed = messages(server.run(prompt), "execution_error")
    check(failed and "prompt is empty" in failed[0]["exception_message"], f"an empty prompt: {failed[0]['exception_message']}")


def interrupt_when(server, prompt, after):
    """Returns the seconds from the interrupt until ComfyUI recorded it, and the prompt's entry. The entry may come later: every ten
    seconds ComfyUI collects garbage after a prompt, and for half a second it answers no request."""
    prompt_id = server.queue(prompt)
    time.sleep(after)
    begun = time.time()
    server.post("interrupt")
    entry = server.result(prompt_id)
    stopped = messages(entry, "execution_interrupted")
    return (stopped[0]["timestamp"] / 1000 if stopped else time.time()) - begun, entry


def interrupts(server):
    server.run(whole())  # everything is loaded
    waits = []
    for i in range(9):
        prompt = large()
        prompt["1"]["inputs"]["color"] = i + 1
        seconds, entry = interrupt_when(server, prompt, 1.2 + 0.25 * i)
        stopped = messages(entry, "execution_interrupted")
        check(stopped and stopped[0]["node_type"] == "DavyUpscaleWithModel", "an interrupt ends the upscale")
        waits.append(seconds)
    limit = 0.1 * float(os.environ.get("DAVY_SLOW", "1"))
    check(sorted(waits)[4] < limit, f"interrupts took {', '.join(f'{1000 * w:.0f}' for w in waits)} ms")
    entry = server.run(whole(width=192))
    check(entry["status"]["status_str"] == "success", "and the next prompt succeeds")


def many(server, count):
    """Many prompts with interrupts in between. Memory must not grow."""
    dice, sizes = random.Random(3), []
    for i in range(count):
        prompt = whole(seed=i, width=dice.choice([96, 128, 160, 224]), question=f"Describe the image, number {i}.")
        prompt_id = server.queue(prompt)
        if i % 4 == 3:
            stopper = threading.Timer(dice.uniform(0, 0.4), server.post, ("interrupt",))
            stopper.start()
            stopper.join()
        entry = server.result(prompt_id)
        ended = "success" if entry["status"]["status_str"] == "success" else "interrupted"
        if ended != "success" and not messages(entry, "execution_interrupted"):
            check(False, f"prompt {i}: {messages(entry, 'execution_error')}")
        if i % 10 == 9:
            server.post("history", {"clear": True})
            sizes.append(server.resident() / 1e6)
    settled = sizes[len(sizes) // 3]
    check(sizes[-1] < settled + 40, "memory in MB: " + ", ".join(f"{s:.0f}" for s in sizes))


def freed(server):
    """The button Unload Models frees the weights."""
    before = server.resident()
    server.post("free", {"unload_models": True, "free_memory": True})
    time.sleep(2)
    after = server.resident()
    text = texts(server.run({"1": {"class_type": "DavyInfo", "inputs": {}}}), "1")[0]
    kept = [line for line in text.splitlines() if line.startswith("in use")]
    check(all("0.0 GiB of weights" in line for line in kept), f"after Unload Models: {kept}, {before >> 20} -> {after >> 20} MiB")
    check(server.run(whole(seed=77))["status"]["status_str"] == "success", "models load again by themselves")


def main(work, count=100):
    base = pathlib.Path(work).resolve()
    stock.models(base)
    picture = base / "input/cat.png"
    picture.write_bytes((ROOT / "packaging/examples/cat.png").read_bytes())
    server = Server(base)
    try:
        workflow(server)
        info(server)
        errors(server, base)
        interrupts(server)
        many(server, int(count))
        freed(server)
    finally:
        server.stop()
    print(f"{stock.passed} passed, {stock.failed} failed")
    return stock.failed != 0


if __name__ == "__main__":
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    sys.exit(main(*sys.argv[1:]))
