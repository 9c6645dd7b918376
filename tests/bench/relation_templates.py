"""Pairs of statements from templates, to train the relation of two statements on more than the labelled pairs.

Their names, things and sentences are not those of the labelled pairs. Each fact has wordings that say the same, values
of which one is true at a time, and a wording that denies it; each event may happen again at another time.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from random import Random

from mnemon_server.domain.conflicts import RelationType

PER_FACT = 2
"""Pairs of each kind from each fact or event."""

RELATIVES = ("Her cousin", "His nephew", "Their landlady", "My grandfather", "Her aunt", "His boss")
OTHERS = (*RELATIVES, "Farida", "Tomasz", "Ingrid", "Rashid")
SELVES = ("The user", "She", "He")


@dataclass(frozen=True, slots=True)
class Fact:
    """`wordings` and `denials` have the places {s} for the subject and {v} for one of `values`."""

    wordings: tuple[str, ...]
    denials: tuple[str, ...]
    values: tuple[str, ...]
    several: bool = False
    """Whether several values may be true at a time."""


@dataclass(frozen=True, slots=True)
class GeneratedPair:
    """Two texts, and how they relate."""

    left: str
    right: str
    relation: RelationType


FACTS = (
    Fact(("{s} works as a {v}.", "{s} earns a living as a {v}.", "{s} has a job as a {v}.", "{s} is a {v}."),
         ("{s} quit working as a {v}.", "{s} never worked as a {v}."),
         ("nurse", "carpenter", "translator", "pilot", "baker")),
    Fact(("{s} drives a {v}.", "The car that {s} has is a {v}.", "{s} owns a {v}."),
         ("{s} no longer has a {v}.", "{s} sold the {v} last week."),
         ("Volvo", "Fiat", "Skoda", "Toyota"), several=True),
    Fact(("{s} plays the {v}.", "{s} is a {v} player.", "{s} makes music on the {v}."),
         ("{s} cannot play the {v}.", "{s} has given up the {v}."),
         ("oboe", "trumpet", "harp", "accordion"), several=True),
    Fact(("{s} lives in {v}.", "{s} has an apartment in {v}.", "Home for {s} is {v}."),
         ("{s} moved away from {v}.", "{s} does not live in {v} anymore."),
         ("Krakow", "Toulouse", "Oslo", "Denver", "Osaka")),
    Fact(("{s} is learning {v}.", "{s} takes lessons in {v}.", "{s} studies {v} with a tutor."),
         ("{s} stopped learning {v}.", "{s} has no wish to learn {v}."),
         ("Turkish", "Korean", "Swahili", "Finnish"), several=True),
    Fact(("{s} likes {v}.", "{s} is very fond of {v}.", "{s} enjoys {v} a lot."),
         ("{s} dislikes {v}.", "{s} cannot stand {v}.", "{s} does not like {v}."),
         ("olives", "camping", "crossword puzzles", "jazz", "horror films"), several=True),
    Fact(("{s} is allergic to {v}.", "{s} gets a rash from {v}.", "{v} makes {s} ill."),
         ("{s} tolerates {v} without any trouble.", "{s} is not allergic to {v}."),
         ("shellfish", "latex", "walnuts", "wool"), several=True),
    Fact(("{s} goes to bed at {v}.", "Bedtime for {s} is {v}.", "{s} is asleep by {v}."),
         ("{s} is never in bed at {v}.",),
         ("ten", "half past eleven", "midnight", "9 pm")),
    Fact(("{s} weighs {v} kilos.", "{s} has a weight of {v} kg.", "The scales show {v} kilos for {s}."),
         ("{s} no longer weighs {v} kilos.",),
         ("58", "71", "83", "90")),
    Fact(("{s} has {v} employees.", "{s} employs {v} people.", "{v} people work for {s}."),
         ("{s} has no employees anymore.",),
         ("six", "nine", "14", "25")),
    Fact(("{s} wants the newsletter on {v}.", "The newsletter for {s} should come on {v}.",
          "{s} asks for the newsletter each {v}."),
         ("{s} does not want the newsletter on {v}.", "{s} has cancelled the newsletter."),
         ("Mondays", "Wednesdays", "Sundays")),
    Fact(("{s} is married to {v}.", "{s} has {v} as a spouse.", "{s} and {v} are a married couple."),
         ("{s} is divorced from {v}.", "{s} was never married to {v}."),
         ("Oksana", "Leopold", "Mirela", "Gaspard")),
    Fact(("{s} banks with {v}.", "{s} keeps an account at {v}.", "The salary of {s} goes to {v}."),
         ("{s} closed the account at {v}.", "{s} has no account at {v}."),
         ("Barclays", "ING", "Santander")),
    Fact(("{s} commutes by {v}.", "{s} gets to the job by {v}.", "{s} takes the {v} every working day."),
         ("{s} avoids the {v}.", "{s} never takes the {v}."),
         ("tram", "ferry", "scooter", "coach")),
    Fact(("{s} keeps a {v} as a pet.", "{s} has a pet {v}.", "A {v} shares the home with {s}."),
         ("{s} gave the {v} away.", "{s} has no {v}."),
         ("parrot", "tortoise", "rabbit", "hamster"), several=True),
    Fact(("{s} speaks {v}.", "{s} is fluent in {v}.", "{s} can talk in {v}."),
         ("{s} does not speak {v}.", "{s} speaks no {v}."),
         ("Hungarian", "Catalan", "Hindi", "Danish"), several=True),
    Fact(("{s} has been to {v}.", "{s} visited {v}.", "{s} travelled to {v}."),
         ("{s} has never been to {v}.", "{s} never visited {v}."),
         ("Iceland", "Morocco", "Vietnam", "Chile"), several=True),
    Fact(("{s} knows how to {v}.", "{s} can {v}.", "{s} is able to {v}."),
         ("{s} does not know how to {v}.", "{s} cannot {v}."),
         ("knit", "juggle", "weld", "surf"), several=True),
    Fact(("{s} is friends with {v}.", "{s} has a friend named {v}.", "{s} and {v} are good friends."),
         ("{s} is no longer friends with {v}.",),
         ("Oksana", "Leopold", "Mirela", "Gaspard"), several=True),
    Fact(("{s} collects {v}.", "{s} has a collection of {v}."),
         ("{s} stopped collecting {v}.", "{s} sold all the {v}."),
         ("stamps", "coins", "vinyl records", "postcards"), several=True),
    Fact(("{s} is interested in {v}.", "{s} reads a lot about {v}."),
         ("{s} is not interested in {v}.", "{s} lost interest in {v}."),
         ("geology", "chess", "opera", "robotics"), several=True),
    Fact(("{s} dislikes {v}.", "{s} hates {v}.", "{s} cannot stand {v}."),
         ("{s} loves {v}.", "{s} likes {v} a lot."),
         ("mushrooms", "long meetings", "cold weather", "loud bars"), several=True),
    Fact(("{s} subscribes to {v}.", "{s} has a subscription to {v}."),
         ("{s} no longer subscribes to {v}.", "{s} cancelled the subscription to {v}."),
         ("the Guardian", "Spotify", "a wine club", "The Lancet"), several=True),
    Fact(("{s} teaches {v}.", "{s} gives lessons in {v}."),
         ("{s} stopped teaching {v}.", "{s} does not teach {v}."),
         ("biology", "ballet", "French", "drawing"), several=True),
    Fact(("{s} bakes {v}.", "{s} is good at baking {v}."),
         ("{s} never bakes {v}.",),
         ("bread", "muffins", "cheesecake", "Christmas biscuits"), several=True),
    Fact(("{s} listens to {v}.", "{s} often has {v} on."),
         ("{s} never listens to {v}.", "{s} is tired of {v}."),
         ("blues", "the news", "audio books", "Mozart"), several=True),
    Fact(("{s} suffers from {v}.", "{s} has {v}."),
         ("{s} has recovered from {v}.", "{s} does not suffer from {v}."),
         ("asthma", "migraine", "hay fever", "back pain"), several=True),
    Fact(("The interview of {s} is {v}.", "{s} goes to the interview {v}."),
         ("The interview of {s} is not {v}.",),
         ("on Monday", "on Wednesday", "on 4 June", "on 20 June")),
    Fact(("The favourite colour of {s} is {v}.", "{s} likes {v} best of all colours."),
         ("{s} does not like {v} anymore.",),
         ("green", "purple", "orange")),
    Fact(("{s} is {v}.", "The marital status of {s} is {v}."),
         ("{s} is not {v}.", "{s} is no longer {v}."),
         ("single", "married", "divorced", "engaged")),
    Fact(("{s} is {v} years old.", "The age of {s} is {v}."),
         ("{s} is not {v} years old.",),
         ("27", "41", "63")),
    Fact(("The phone number of {s} is {v}.", "{s} can be called at {v}."),
         ("The phone number of {s} is no longer {v}.",),
         ("0151 2277", "0170 8846", "0163 9915")),
)  # fmt: skip

TIMES = (
    "in January",
    "in April",
    "in June",
    "in November",
    "last Easter",
    "in 2015",
    "in 2018",
    "on Tuesday",
    "on Friday",
)
EVENTS = (
    ("Visited the aquarium {t} with {v}.", ("the scouts", "a colleague", "Grandma")),
    ("Bought {v} at the flea market {t}.", ("a lamp", "two armchairs", "an old map")),
    ("{v} was repaired {t}.", ("The dishwasher", "The garage door", "The boiler")),
    ("Gave a lecture about {v} {t}.", ("glaciers", "tax law", "bees in cities")),
    ("Hiked {v} kilometres in Norway {t}.", ("40", "75", "120")),
    ("Lost {v} on the bus {t}.", ("an umbrella", "a glove", "the keys")),
    ("Had {v} {t}.", ("a cold", "surgery on the knee", "an ear infection")),
    ("Has {v} {t}.", ("a driving lesson", "a job interview", "an appointment at the bank")),
    ("There is {v} {t}.", ("a flea market", "a school concert", "a staff party")),
    ("Spent {v} euros on books {t}.", ("55", "130", "20")),
)
KINDS = (
    ("The {k} room has {v} windows.", ("guest", "living", "dining"), ("two", "three", "five")),
    ("The {k} key opens the {v}.", ("silver", "brass", "small"), ("shed", "letter box", "cellar")),
    ("The {k} server runs {v}.", ("mail", "build", "backup"), ("Debian", "Windows", "FreeBSD")),
    ("The {k} meeting is about {v}.", ("weekly", "monthly", "yearly"), ("staffing", "budgets", "marketing")),
)
"""Things of different kinds: the same is said of both, with different values."""


def generate(seed: int = 1) -> Iterator[GeneratedPair]:
    """All pairs, the same ones for a seed."""
    random = Random(seed)
    for fact in FACTS:
        for _ in range(PER_FACT):
            yield from _of_fact(fact, random)
    for wording, values in EVENTS:
        for _ in range(PER_FACT):
            (one, other), (first, then) = random.sample(values, 2), random.sample(TIMES, 2)
            yield _unrelated(wording.format(t=first, v=one), wording.format(t=then, v=other))
            yield _unrelated(wording.format(t=first, v=one), wording.format(t=then, v=one))
    for wording, kinds, values in KINDS:
        for kind, other_kind in pairwise(kinds):
            one, other = random.sample(values, 2)
            yield _unrelated(wording.format(k=kind, v=one), wording.format(k=other_kind, v=other))
            yield GeneratedPair(wording.format(k=kind, v=one), wording.format(k=kind, v=other), RelationType.UPDATES)
    for fact, other_fact in pairwise(FACTS):
        for subject in (random.choice(SELVES), random.choice(OTHERS)):
            left, right = (
                _say(random.choice(each.wordings), subject, random.choice(each.values)) for each in (fact, other_fact)
            )
            yield _unrelated(left, right)


def _of_fact(fact: Fact, random: Random) -> Iterator[GeneratedPair]:
    for subjects in (SELVES, OTHERS):
        subject = random.choice(subjects)
        again = random.choice(subjects) if subjects is SELVES else subject
        value, new = random.sample(fact.values, 2)
        wording, rewording = random.sample(fact.wordings, 2)
        known = _say(wording, subject, value)
        yield GeneratedPair(known, _say(rewording, again, value), RelationType.SAME)
        another = RelationType.UNRELATED if fact.several else RelationType.UPDATES
        yield GeneratedPair(known, _say(wording, again, new), another)
        yield GeneratedPair(known, _say(rewording, again, new), another)
        if fact.several:
            yield _unrelated(known, _say(random.choice(fact.denials), again, new))
        yield GeneratedPair(known, _say(random.choice(fact.denials), again, value), RelationType.CONTRADICTS)
        # A name may be the user's, so only relatives surely are somebody else.
        others = RELATIVES if subjects is SELVES else OTHERS
        other = random.choice([each for each in others if each != subject])
        yield _unrelated(known, _say(wording, other, value))
        yield _unrelated(known, _say(wording, other, new))
        yield _unrelated(known, _say(random.choice((rewording, *fact.denials)), other, value))


def _say(wording: str, subject: str, value: str) -> str:
    begins = wording.startswith("{s}")
    inner = (
        subject
        if begins or subject.split()[0] not in ("The", "Her", "His", "Their", "My", "She", "He")
        else subject[0].lower() + subject[1:]
    )
    text = wording.format(s=inner, v=value)
    return text[0].upper() + text[1:]


def _unrelated(left: str, right: str) -> GeneratedPair:
    return GeneratedPair(left, right, RelationType.UNRELATED)
