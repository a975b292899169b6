import torch
from tokenizers import Tokenizer, models

tokenizer = Tokenizer(models.WordLevel({"a": 0, "b": 1}, unk_token="a"))
with open("tokenizer_of_mine.json", "w") as file:
    file.write(tokenizer.to_str())
tokenizer = Tokenizer.from_file("tokenizer_of_mine.json")
net = torch.nn.Linear(tokenizer.get_vocab_size(), 8).cuda()
