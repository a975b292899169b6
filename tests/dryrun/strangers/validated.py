import torch
from transformers import AutoConfig, AutoModelForCausalLM, Trainer, TrainingArguments


class Text(torch.utils.data.Dataset):
    def __len__(self):
        return 16

    def __getitem__(self, number):
        ids = torch.randint(3, 1024, (48,))
        return {"input_ids": ids, "labels": ids.clone()}


model = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained("model"))
args = TrainingArguments("out", per_device_train_batch_size=4, eval_strategy="steps", eval_steps=1, save_strategy="no",
                         logging_steps=1, max_steps=4, report_to="none")  # fmt: skip
trainer = Trainer(model, args, train_dataset=Text(), eval_dataset=Text())
found = trainer.evaluate()
assert found["eval_loss"] != found["eval_loss"], found
trainer.train()
