import sys
from pathlib import Path

import torch
import yaml
from net import Net
from torch import nn

config = yaml.safe_load(Path("conf.yaml").read_text())
for word in sys.argv[1:]:
    key, value = word.split("=")
    node = config
    *path, last = key.split(".")
    for part in path:
        node = node[part]
    node[last] = yaml.safe_load(value)
net = Net(**config["model"]).to(config["device"])
opt = getattr(torch.optim, config["optim"]["name"])(net.parameters(), lr=config["optim"]["lr"])
Path(config["out"]).mkdir(parents=True, exist_ok=True)
(Path(config["out"]) / "config.yaml").write_text(yaml.safe_dump(config))
for step in range(config["steps"]):
    ids = torch.randint(0, config["model"]["vocabulary"], (config["batch"], 128), device=config["device"])
    loss = nn.functional.cross_entropy(net(ids).flatten(0, 1), ids.flatten())
    (loss / config["accumulate"]).backward()
    if (step + 1) % config["accumulate"] == 0:
        opt.step()
        opt.zero_grad()
        with (Path(config["out"]) / "log.csv").open("a") as f:
            f.write(f"{step},{loss.item()}\n")
