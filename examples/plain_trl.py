"""A small Llama counts in sevens in TRL's SFT trainer: plain_trl.py learns from text, distill_trl.py with a teacher."""

from datasets import Dataset
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast, set_seed
from trl import SFTConfig, SFTTrainer

WORDS = ["<pad>", "<eos>", *(str(number) for number in range(30))]


def build_model(width: int, layers: int) -> LlamaForCausalLM:
    """A Llama whose vocabulary is a few numbers."""
    config = LlamaConfig(
        vocab_size=len(WORDS),
        hidden_size=width,
        intermediate_size=2 * width,
        num_hidden_layers=layers,
        num_attention_heads=2,
        pad_token_id=0,
        eos_token_id=1,
        bos_token_id=None,
    )
    return LlamaForCausalLM(config)


core = Tokenizer(models.WordLevel({word: number for number, word in enumerate(WORDS)}, unk_token="<pad>"))
core.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
tokenizer = PreTrainedTokenizerFast(tokenizer_object=core, pad_token="<pad>", eos_token="<eos>")
counts = [[(start + 7 * place) % 30 for place in range(length)] for start in range(30) for length in range(4, 12)]
texts = Dataset.from_dict({"text": [" ".join(map(str, count)) + " <eos>" for count in counts]})
parts = texts.train_test_split(test_size=0.2, seed=0)
args = SFTConfig(
    output_dir="trl-run",
    num_train_epochs=4,
    per_device_train_batch_size=8,
    learning_rate=1e-2,
    logging_steps=20,
    save_strategy="no",
    report_to="none",
    use_cpu=True,
    bf16=False,
)

set_seed(0)
model = build_model(width=16, layers=2)
trainer = SFTTrainer(model, args, train_dataset=parts["train"], processing_class=tokenizer)
trainer.train()
print(f"eval_loss {trainer.evaluate(parts['test'])['eval_loss']:.3f}")
