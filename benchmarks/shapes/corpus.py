"""A few plain sentences: what the tokenizers of the random models learn their merges from.

ASCII only, so that no merged token ever holds half a character.
"""

SENTENCES = (
    "The quick brown fox jumps over the lazy dog while the sun goes down behind the hills.",
    "A server answers many people at once, and each of them sees the words as they come.",
    "Count the tokens that go in, count the tokens that come out, and keep the two apart.",
    "The first token tells how long a person waits; the gaps between tokens tell how it reads.",
    "What is the capital of the country where the longest river meets the oldest city?",
    "Please write a short story about a lighthouse keeper who finds a letter in the sand.",
    "In the morning the market opens, and by noon every table has bread, salt and fruit.",
    "When the rain had stopped, the children went out to the garden and looked for snails.",
    "Numbers such as one, two, three, ten, twenty and one hundred are words as well.",
    "The model reads the question, thinks about the answer, and then begins to speak.",
    "Every winter the old bridge was closed, and every spring the village opened it again.",
    "A good tool does one thing, says what it did, and leaves the table clean behind it.",
)

WORDS = tuple(sorted({word.strip(".,;?").lower() for line in SENTENCES for word in line.split()}))
