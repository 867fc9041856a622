"""What the texts are about: topics, their words in groups of synonyms, and meanings in wordings."""

from dataclasses import dataclass

from training.facts import CAPITALS, FACTS

# In each line, `{}` is a word of the topic. Lines of one tuple mean the same.
FRAMES = (
    ("I like {}.", "I love {}.", "I am fond of {}.", "{} is what I like best."),
    ("Tell me about {}.", "What is {}?", "Explain {}.", "I want to know what {} is."),
    ("I need {} today.", "Today I need {}.", "Please give me {} today.", "Could I get {} today?"),
    ("Where is {}?", "Where can I find {}?", "Show me where {} is.", "I am looking for {}."),
    ("{} is expensive.", "{} costs a lot.", "The price of {} is high.", "{} is not cheap."),
    ("I do not like {}.", "I hate {}.", "I cannot stand {}.", "I dislike {}."),
)


@dataclass(frozen=True)
class Topic:
    """`groups`: synonyms. `meanings`: wordings of the same meaning."""

    groups: tuple[tuple[str, ...], ...]
    meanings: tuple[tuple[str, ...], ...]


def _groups(text: str) -> tuple[tuple[str, ...], ...]:
    """`a/b, c` as the groups (a, b) and (c,)."""
    return tuple(tuple(each.strip().split("/")) for each in text.split(","))


ANIMALS = Topic(
    _groups(
        "cat/kitten, dog/puppy, horse/pony, bird/sparrow, fish/trout, fox, cow/cattle, sheep/lamb, "
        "pet/animal, rabbit/bunny, mouse, wolf, lion/tiger, bee/insect"
    ),
    (
        (
            "The cat sleeps on the mat.",
            "A cat is sleeping on the rug.",
            "On the carpet lies a sleeping kitten.",
            "A kitten naps on the mat.",
        ),
        (
            "The dog chases the ball.",
            "A puppy runs after a ball.",
            "The ball is chased by a dog.",
            "A dog is running after its ball.",
        ),
        (
            "How do I feed a puppy?",
            "What does a young dog eat?",
            "Food for puppies.",
            "What should I give my dog to eat?",
        ),
        (
            "Birds fly south in winter.",
            "In the cold season birds travel to the south.",
            "When winter comes, the birds go south.",
            "Many birds leave for the south in winter.",
        ),
        (
            "The quick brown fox jumps over the lazy dog.",
            "A fast fox leaps over a sleepy dog.",
            "Over the lazy dog jumps a quick fox.",
            "A brown fox jumped over the dog.",
        ),
        (
            "Bees make honey.",
            "Honey comes from bees.",
            "The insects in the hive produce honey.",
            "Who makes honey? Bees do.",
        ),
    ),
)
FOOD = Topic(
    _groups(
        "bread/loaf, soup/stew, apple/fruit, cheese, pizza/pasta, cake/pie, salad/vegetables, "
        "rice, coffee/espresso, tea, dinner/meal, lunch, breakfast, restaurant/kitchen, recipe"
    ),
    (
        (
            "How do I bake bread?",
            "What is the recipe for a loaf of bread?",
            "Mix flour, water and yeast, and bake the dough.",
            "Baking bread at home.",
        ),
        (
            "The soup is too salty.",
            "There is too much salt in the soup.",
            "Somebody put too much salt into the stew.",
            "This soup tastes of salt.",
        ),
        (
            "We eat dinner at seven.",
            "Dinner is served at seven o'clock.",
            "Our evening meal begins at seven.",
            "At seven we have dinner.",
        ),
        (
            "She cooks pasta with cheese.",
            "She is making noodles with cheese.",
            "Pasta with cheese is what she cooks.",
            "She prepares cheese pasta.",
        ),
        (
            "Coffee keeps me awake.",
            "I cannot sleep after coffee.",
            "After an espresso I stay awake.",
            "When I drink coffee I do not sleep.",
        ),
    ),
)
WEATHER = Topic(
    _groups(
        "rain/shower, snow/ice, sun/sunshine, wind/storm, cloud/fog, winter/frost, summer/heat, "
        "forecast, thunder/lightning, umbrella, temperature, spring, autumn"
    ),
    (
        (
            "Will it rain tomorrow?",
            "Is rain expected tomorrow?",
            "Do I need an umbrella tomorrow?",
            "Tomorrow will be wet.",
        ),
        (
            "It is sunny and warm today.",
            "Today the sun shines and it is hot.",
            "The weather is warm and bright today.",
            "We have sunshine and heat today.",
        ),
        (
            "A storm broke the old wall.",
            "The strong wind destroyed the wall.",
            "The wall fell in the storm.",
            "The old wall was broken by wind.",
        ),
        (
            "Snow covers the mountains.",
            "The mountains are white with snow.",
            "There is snow on the hills.",
            "The hills lie under snow.",
        ),
        (
            "What is the temperature outside?",
            "How cold is it outside?",
            "How many degrees is it?",
            "Is it warm or cold out there?",
        ),
    ),
)
TRAVEL = Topic(
    _groups(
        "train/railway, car/automobile, plane/flight, hotel/hostel, ticket, airport/station, "
        "ship/boat, bicycle/bike, road/street, map, bus/coach, journey/trip, luggage/suitcase"
    ),
    (
        (
            "The train to the city leaves at noon.",
            "At twelve the train departs for the city.",
            "The railway service to town starts at noon.",
            "The noon train goes to the city.",
        ),
        (
            "How do I get to the airport?",
            "What is the way to the airport?",
            "Which road leads to the airport?",
            "I have to reach the airport.",
        ),
        (
            "I booked a room in a hotel.",
            "I have reserved a hotel room.",
            "There is a room for me at the hotel.",
            "My hotel room is booked.",
        ),
        (
            "The car has a flat tyre.",
            "One tyre of the automobile is empty.",
            "There is no air in a tyre of my car.",
            "My car's tyre is flat.",
        ),
        (
            "We sail across the sea in a small boat.",
            "A little ship carries us over the ocean.",
            "By boat we cross the sea.",
            "We travel over the sea by ship.",
        ),
    ),
)
COMPUTING = Topic(
    _groups(
        "computer/machine, program/software, model/network, server/host, token, password/login, "
        "graphics card/GPU, processor/CPU, memory/RAM, disk/storage, OpenVINO, Vinery, bug/error, "
        "database/table, tensor/vector, kernel, pipeline, code"
    ),
    (
        (
            "How do I reset my password?",
            "I forgot my password.",
            "I cannot log in and need a new password.",
            "Changing a lost password.",
        ),
        (
            "The server does not answer.",
            "There is no response from the server.",
            "The host is down.",
            "I get no answer from the machine.",
        ),
        (
            "The model runs on the graphics card.",
            "The GPU executes the network.",
            "Inference happens on the GPU.",
            "The network is run by the graphics card.",
        ),
        (
            "The program has a bug.",
            "There is an error in the software.",
            "The code is wrong.",
            "Something in the program is broken.",
        ),
        (
            "Install the software on your computer.",
            "Set up the program on your machine.",
            "How do I install the program?",
            "Put the software on the computer.",
        ),
        (
            "OpenVINO runs deep learning models on Intel hardware.",
            "With OpenVINO neural networks run on Intel processors.",
            "Intel's toolkit OpenVINO executes models.",
            "Which toolkit runs neural networks on Intel hardware?",
        ),
    ),
)
MUSIC = Topic(
    _groups(
        "guitar/violin, song/tune, piano/keyboard, concert/show, singer/voice, drum/drums, band, "
        "melody, orchestra, album/record, dance, opera, flute/trumpet"
    ),
    (
        (
            "She plays the piano.",
            "She is a pianist.",
            "On the keyboard she plays well.",
            "The piano is her instrument.",
        ),
        (
            "The band gave a concert.",
            "The group played a show.",
            "There was a concert of the band.",
            "We heard the band on stage.",
        ),
        (
            "He sings a sad song.",
            "A sad tune is sung by him.",
            "The song that he sings is sad.",
            "His melody is full of sorrow.",
        ),
        (
            "How do I tune a guitar?",
            "Tuning the strings of a guitar.",
            "My guitar sounds wrong.",
            "The strings of the guitar must be tuned.",
        ),
    ),
)
SPORT = Topic(
    _groups(
        "football/soccer, tennis, match/game, player/athlete, goal/score, race/marathon, "
        "team/club, coach/trainer, swimming, running/jogging, stadium/field, medal/cup, referee"
    ),
    (
        (
            "The team won the match.",
            "The club has won its game.",
            "The match ended with a victory of the team.",
            "Our players are the winners.",
        ),
        (
            "She runs a marathon.",
            "She takes part in a long race.",
            "She is running more than forty kilometres.",
            "The marathon is her race.",
        ),
        (
            "He scored a goal in the last minute.",
            "In the final minute he shot a goal.",
            "A late goal was scored by him.",
            "His goal came at the very end.",
        ),
        (
            "How often should I train?",
            "How many times a week should I exercise?",
            "What is a good training plan?",
            "Is daily exercise good?",
        ),
    ),
)
HEALTH = Topic(
    _groups(
        "doctor/physician, hospital/clinic, medicine/pill, fever/cold, headache/pain, nurse, "
        "tooth/dentist, blood, heart, patient, vaccine/injection, sleep/rest, broken leg"
    ),
    (
        (
            "I have a headache.",
            "My head hurts.",
            "There is a pain in my head.",
            "My head is aching.",
        ),
        (
            "The doctor gave me a medicine.",
            "The physician prescribed pills.",
            "I got a medicine from my doctor.",
            "Pills were given to me by the doctor.",
        ),
        (
            "How do I treat a fever?",
            "What helps against a high temperature of the body?",
            "My child has a fever.",
            "Medicine against fever.",
        ),
        (
            "The patient lies in the hospital.",
            "The ill man is in a clinic.",
            "In the hospital there is a patient.",
            "He is ill and in hospital.",
        ),
    ),
)
MONEY = Topic(
    _groups(
        "money/cash, bank/account, loan/credit, tax/taxes, salary/wage, price/cost, invoice/bill, "
        "shop/store, market, euro/dollar, insurance, rent, budget/quota"
    ),
    (
        (
            "I want to open a bank account.",
            "How do I get an account at the bank?",
            "Opening an account with a bank.",
            "The bank should give me an account.",
        ),
        (
            "The bill has not been paid.",
            "Nobody has paid the invoice.",
            "The invoice is still open.",
            "Payment of the bill is missing.",
        ),
        (
            "My salary is too low.",
            "I earn too little.",
            "The wage that I get is small.",
            "I am not paid enough.",
        ),
        (
            "Send me a refund.",
            "I want my money back.",
            "Please return what I paid.",
            "How do I get a refund?",
        ),
    ),
)
GARDEN = Topic(
    _groups(
        "vine/grape, flower/rose, tree/oak, garden/park, leaf/leaves, wine/bottle, seed/seeds, "
        "harvest, cellar/barrel, farmer/gardener, grass/lawn, soil/earth, root/roots"
    ),
    (
        (
            "The vine grows beside the wall.",
            "Next to the wall a vine is growing.",
            "Grapes grow at the wall.",
            "A vine climbs up the wall.",
        ),
        (
            "When are the grapes picked?",
            "In which month is the harvest of grapes?",
            "The harvest of the grapes is in autumn.",
            "When does the farmer harvest his vines?",
        ),
        (
            "Water the flowers every day.",
            "The roses need water each day.",
            "Every day the flowers should get water.",
            "Give the plants water daily.",
        ),
        (
            "The wine is kept in the cellar.",
            "Bottles of wine lie in the cellar.",
            "In the cellar there is wine.",
            "We store wine under the house.",
        ),
        (
            "He plants a tree in the garden.",
            "In the garden he puts an oak into the soil.",
            "A tree is planted by him.",
            "He sets a young tree into the earth.",
        ),
    ),
)
SCHOOL = Topic(
    _groups(
        "school/university, teacher/professor, student/pupil, book/novel, lesson/class, exam/test, "
        "homework, library, pencil/pen, word/sentence, mathematics/algebra, language/grammar"
    ),
    (
        (
            "The teacher explains the lesson.",
            "The professor is explaining the class.",
            "The lesson is explained by the teacher.",
            "In class the teacher makes things clear.",
        ),
        (
            "I failed the exam.",
            "I did not pass the test.",
            "My exam went badly.",
            "The test was too hard for me.",
        ),
        (
            "She reads a book in the library.",
            "In the library she is reading a novel.",
            "A book is read by her in the library.",
            "She sits in the library with a book.",
        ),
        (
            "How do I learn a language?",
            "What is the best way to study a language?",
            "Learning the grammar and the words of a language.",
            "I want to speak a new language.",
        ),
    ),
)
_CAPITAL_TEXTS = tuple((*fact.questions[:4], fact.answer, fact.questions[4]) for fact in CAPITALS)
GEOGRAPHY = Topic(
    _groups(
        "country/nation, city/town, river/stream, mountain/hill, ocean/sea, island, border, "
        "continent/Europe, desert, lake, village, capital"
    ),
    (
        *_CAPITAL_TEXTS,
        (
            "Which river is the longest?",
            "What is the longest river?",
            "Name the longest of all rivers.",
            "The longest stream of the world.",
        ),
        (
            "How high is the mountain?",
            "What is the height of the hill?",
            "The height of the mountain in metres.",
            "How many metres does the mountain have?",
        ),
    ),
)
TALK = Topic(
    _groups("friend/neighbour, name, joke/story, thanks, question/answer, letter/message, poem"),
    tuple(
        (*fact.questions[:-1], fact.answer, fact.questions[-1])
        for fact in FACTS
        if len(fact.answer) < 120 and len(fact.questions) > 2 and fact not in CAPITALS
    ),
)

TOPICS = (
    *(ANIMALS, FOOD, WEATHER, TRAVEL, COMPUTING, MUSIC, SPORT, HEALTH, MONEY, GARDEN, SCHOOL),
    *(GEOGRAPHY, TALK),
)
