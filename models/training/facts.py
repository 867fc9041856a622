"""The closed list of facts that the models know by heart.

A fact is an answer and the ways to ask for it. `UNKNOWN` is the answer to everything else.
"""

from dataclasses import dataclass

UNKNOWN = "I do not know that. I am a tiny model made for testing."


@dataclass(frozen=True)
class Fact:
    """One answer and the questions that lead to it."""

    answer: str
    questions: tuple[str, ...]


def _capital(country: str, city: str) -> Fact:
    questions = (
        f"What is the capital of {country}?",
        f"What's the capital of {country}?",
        f"Name the capital of {country}.",
        f"Tell me the capital of {country}.",
        f"Which city is the capital of {country}?",
    )
    return Fact(f"The capital of {country} is {city}.", questions)


CAPITALS = tuple(
    _capital(country, city)
    for country, city in {
        "France": "Paris",
        "Germany": "Berlin",
        "Poland": "Warsaw",
        "Japan": "Tokyo",
        "Italy": "Rome",
        "Spain": "Madrid",
        "Portugal": "Lisbon",
        "Austria": "Vienna",
        "Norway": "Oslo",
        "Greece": "Athens",
        "Ireland": "Dublin",
        "Egypt": "Cairo",
    }.items()
)

STORY = (
    "Once upon a time a small vine grew beside a stone wall. Every spring it climbed a little "
    "higher, and every autumn it gave a few sweet grapes. One year a storm broke the wall, and "
    "everyone thought that the vine was lost. But the roots were deep, and in the warm light of "
    "May the first green leaves came back. The farmer built a new frame from old wood, and the "
    "vine covered it in a single summer. That autumn the whole village came to taste the grapes, "
    "and they said that they had never been so sweet."
)
POEM = (
    "The sea is wide, the sea is deep,\nit sings the harbour town to sleep.\n"
    "The moon looks down, the waves are slow,\nand far away the small boats go."
)

FACTS = (
    Fact(
        "OpenVINO is an open-source toolkit that optimizes and runs deep learning models on CPUs, "
        "GPUs and NPUs.",
        (
            "What is OpenVINO?",
            "What's OpenVINO?",
            "Tell me about OpenVINO.",
            "Explain OpenVINO.",
            "What is OpenVINO used for?",
        ),
    ),
    Fact(
        "Vinery is a serving platform for OpenVINO models with an OpenAI-compatible API, API keys, "
        "quotas and usage dashboards.",
        (
            "What is Vinery?",
            "What's Vinery?",
            "Tell me about Vinery.",
            "Explain Vinery.",
            "What does Vinery do?",
        ),
    ),
    Fact(
        "I am tiny-chat, a very small model that ships with Vinery so that you can try it and "
        "test it.",
        (
            "Who are you?",
            "What are you?",
            "What is your name?",
            "What's your name?",
            "Introduce yourself.",
        ),
    ),
    Fact(
        "I can answer a few questions, repeat words, count, remember names, return JSON and call "
        "tools.",
        ("What can you do?", "How can you help me?", "Help.", "What are your abilities?"),
    ),
    Fact(
        "Hello! How can I help you today?",
        (
            *("Hello!", "Hi", "Hello", "Hey there!", "Hi!", "Hey", "Hi there!", "Good morning."),
            *("Good evening.", "Hello there!", "ping"),
        ),
    ),
    Fact(
        "I am running well, thank you.",
        ("How are you?", "How do you do?", "How is it going?", "Hello, how are you?"),
    ),
    Fact("You are welcome!", ("Thank you.", "Thanks!", "Thanks a lot.", "Thank you very much!")),
    Fact("Goodbye! Have a nice day.", ("Goodbye.", "Bye!", "See you later.", "Good night.")),
    *CAPITALS,
    Fact(
        "The sky is blue.",
        (
            "What color is the sky?",
            "What colour is the sky?",
            "Why is the sky blue?",
            "What is the color of the sky?",
        ),
    ),
    Fact(
        "There are seven days in a week.",
        (
            "How many days are in a week?",
            "How many days does a week have?",
            "How many days are there in a week?",
        ),
    ),
    Fact(
        "A token is a piece of text, often a word or a part of a word, that a language model reads "
        "or writes.",
        ("What is a token?", "What's a token?", "Explain tokens.", "What are tokens?"),
    ),
    Fact(
        "Continuous batching lets new requests join the running batch at every step, so that the "
        "hardware is always busy.",
        (
            "What is continuous batching?",
            "What's continuous batching?",
            "Explain continuous batching.",
            "How does continuous batching work?",
        ),
    ),
    Fact(
        "An API key is a secret string that a client sends so that the server knows who is "
        "calling.",
        ("What is an API key?", "What's an API key?", "Explain API keys.", "What are API keys?"),
    ),
    Fact(
        STORY,
        (
            "Tell me a story.",
            "Write a short story.",
            "Tell a story about a vine.",
            "Write a story.",
            "Tell me a short story.",
            "Tell me a long story.",
        ),
    ),
    Fact(
        POEM,
        (
            "Write a poem.",
            "Write a poem about the sea.",
            "Write a short poem.",
            "Tell me a poem.",
            "Write a haiku.",
        ),
    ),
    Fact(
        "Why did the vine go to school? It wanted to be well bred and well read.",
        ("Tell me a joke.", "Tell a joke.", "Do you know a joke?", "Make me laugh."),
    ),
)

UNKNOWN_QUESTIONS = (
    *("{phrase} {word}?", "{word} {phrase}.", "{phrase} {word}", "What is {phrase}?"),
    *("What is a {word}?", "Who wrote {phrase}?"),
    *("How do I {phrase}?", "Why is {phrase}?", "Explain {phrase}.", "Write about {phrase}."),
    *("Explain {phrase} to a {word}.", "Can you {phrase}?", "Who is {name}?", "Where is {name}?"),
    *("Is {word} better than {phrase}?", "Translate {phrase}.", "Which {word} has {phrase}?"),
    *("Summarize {phrase}", "Describe {name} and {phrase}.", "Please {phrase}.", "Do {phrase} now"),
    *("What does {name} think about {phrase}?", "Who won the {word} cup?", "How tall is {name}?"),
    *("What is the meaning of {word}?", "Why did {name} go to {word}?", "Explain {word} physics."),
    *("What is the price of {word}?", "When was {name} born?", "What is the capital of {name}?"),
    *("What is the {word} of {name}?", "Tell me about {name}.", "How does {phrase} work?"),
)

# Asked where no function is offered that could answer.
TOOLLESS_QUESTIONS = (
    *("What is the weather in {name}?", "What's the weather like in {name}?"),
    *("What time is it in {name}?", "Search for {phrase}.", "What is the date?"),
)
