import lightning as L
import torch
from net import Net
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Lit(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.save_hyperparameters()
        self.net = Net()

    def training_step(self, batch, i):
        (ids,) = batch
        loss = nn.functional.cross_entropy(self.net(ids).flatten(0, 1), ids.flatten())
        self.log("train_loss", loss, prog_bar=True)
        return loss

    def validation_step(self, batch, i):
        (ids,) = batch
        loss = nn.functional.cross_entropy(self.net(ids).flatten(0, 1), ids.flatten())
        self.log("val_loss", loss)

    def configure_optimizers(self):
        opt = torch.optim.AdamW(self.parameters(), lr=1e-3)
        return {"optimizer": opt, "lr_scheduler": torch.optim.lr_scheduler.CosineAnnealingLR(opt, 10)}


data = DataLoader(TensorDataset(torch.randint(0, 4096, (64, 128))), 8, num_workers=2)
L.seed_everything(0)
trainer = L.Trainer(
    max_epochs=2,
    accelerator="gpu",
    devices=1,
    precision="bf16-mixed",
    gradient_clip_val=1.0,
    accumulate_grad_batches=2,
    callbacks=[
        L.pytorch.callbacks.ModelCheckpoint(monitor="val_loss"),
        L.pytorch.callbacks.LearningRateMonitor(),
        L.pytorch.callbacks.EarlyStopping("val_loss"),
    ],
)
trainer.fit(Lit(), data, data)
