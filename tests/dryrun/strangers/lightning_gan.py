import lightning as L
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Gan(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.automatic_optimization = False
        self.g = nn.Sequential(nn.Linear(128, 1024), nn.ReLU(), nn.Linear(1024, 784))
        self.d = nn.Sequential(nn.Linear(784, 1024), nn.ReLU(), nn.Linear(1024, 1))

    def training_step(self, batch, i):
        (x,) = batch
        og, od = self.optimizers()
        z = torch.randn(x.shape[0], 128, device=self.device)
        gl = -self.d(self.g(z)).mean()
        self.toggle_optimizer(og)
        og.zero_grad()
        self.manual_backward(gl)
        og.step()
        self.untoggle_optimizer(og)
        dl = self.d(self.g(z).detach()).mean() - self.d(x).mean()
        od.zero_grad()
        self.manual_backward(dl)
        od.step()
        self.log_dict({"g": gl, "d": dl}, prog_bar=True)

    def configure_optimizers(self):
        return torch.optim.Adam(self.g.parameters()), torch.optim.Adam(self.d.parameters())


L.Trainer(max_epochs=1, accelerator="auto", devices="auto", precision="16-mixed").fit(
    Gan(), DataLoader(TensorDataset(torch.randn(640, 784)), 64)
)
