"""The words by which the relation of two statements is told: negations, changes, opposites, times and persons."""

import re

_NEGATIONS_TEXT = """
    no not never none nobody nothing nowhere neither nor without cannot hardly rarely seldom zero dislike hate
    refuse avoid deny lack kein keine keinen keiner keinem nicht nie niemals ohne ne pas jamais sans aucun nunca sin
    jamás non mai senza não sem niet geen nooit
"""
NEGATIONS = frozenset(_NEGATIONS_TEXT.split())

_CHANGES_TEXT = """
    now anymore instead quit stopped switched moved became changed longer used former formerly since replaced left
    ended started retired transferred cancelled postponed slipped gave given sold deleted engaged married divorced
    born broke finished over already recently currently new until
"""
CHANGES = frozenset(_CHANGES_TEXT.split())

_PRONOUNS_TEXT = """
    i he she it they we you my his her their our your its user users the a an this that these those one mine hers
    there who someone
"""
PRONOUNS = frozenset(_PRONOUNS_TEXT.split())

_VERBS_TEXT = """
    is are was were be been has have had do does did can could will would shall should may might must am isn't
    aren't wasn't weren't hasn't haven't hadn't doesn't don't didn't can't couldn't won't wouldn't shouldn't mustn't
    cannot i'm i've he's she's it's they're we're you're never always often usually only just still went took got
    made gave came put read ran wrote met told lent bought sold drank ate flew drove paid let quit left broke lost there
"""
VERBS = frozenset(_VERBS_TEXT.split())
"""Verbs, and words right before one, that end the subject of a sentence and do not end like "plays" or "played"."""

_PAST_TEXT = """
    was were had went took got made gave came put wrote met told lent bought sold drank ate flew drove paid ran read
    did saw felt lost won broke
"""
PAST = frozenset(_PAST_TEXT.split())

_CALENDAR_TEXT = """
    january february march april june july august september october november december monday tuesday wednesday
    thursday friday saturday sunday spring summer autumn winter today tomorrow yesterday morning afternoon evening
    night noon midnight januar februar märz mai juni juli oktober dezember montag dienstag mittwoch donnerstag
    freitag samstag sonntag
"""
CALENDAR = frozenset(_CALENDAR_TEXT.split())
"""Times. "May" is missing, because it is a verb, too."""

_PERSONS_TEXT = """
    mother mum mom father dad parent parents brother sister son daughter child children wife husband partner
    girlfriend boyfriend friend uncle aunt cousin nephew niece grandmother grandma grandfather grandpa teacher boss
    colleague neighbour neighbor neighbours neighbors landlord manager flatmate roommate mutter vater bruder
    schwester sohn tochter frau mann freund freundin onkel tante oma opa kollege kollegin chef
"""
PERSONS = frozenset(_PERSONS_TEXT.split())

RELATIVES = {
    "mum": "mother", "mom": "mother", "dad": "father", "grandma": "grandmother", "grandpa": "grandfather",
    "neighbor": "neighbour", "manager": "boss", "roommate": "flatmate", "wife": "spouse", "husband": "spouse",
    "partner": "spouse",
}  # fmt: skip
"""Synonyms of PERSONS."""

_NUMBERS_TEXT = """
    0:zero 1:one 2:two 3:three 4:four 5:five 6:six 7:seven 8:eight 9:nine 10:ten 11:eleven 12:twelve 13:thirteen
    14:fourteen 15:fifteen 16:sixteen 17:seventeen 18:eighteen 19:nineteen 20:twenty 30:thirty 40:forty 50:fifty
    60:sixty 70:seventy 80:eighty 90:ninety 100:hundred 1000:thousand 1:first 2:second 3:third 4:fourth 5:fifth
    6:sixth 7:seventh 8:eighth 9:ninth 10:tenth 1:once 2:twice 2:both 2:pair 0:null 1:eins 2:zwei 3:drei 4:vier
    5:fünf 6:sechs 7:sieben 8:acht 9:neun 10:zehn
"""

NUMBERS = {word: number for number, word in (entry.split(":") for entry in _NUMBERS_TEXT.split())}
"""Numbers in digits, by their words."""

_OPPOSITES_TEXT = """
    love:hate like:dislike like:hate enjoy:hate enjoy:avoid prefer:hate love:avoid love:dislike morning:evening
    morning:night early:late light:dark hot:cold warm:cold single:married single:engaged married:divorced
    open:closed start:end start:stop begin:end win:lose pass:fail accept:reject accept:decline allow:forbid
    permit:forbid public:private remote:office cheap:expensive easy:hard early:behind true:false always:never
    all:none everybody:nobody anyone:nobody full:empty on:off in:out up:down left:right big:small large:small
    old:new first:last alive:dead healthy:ill healthy:sick vegetarian:meat vegan:meat alone:together rich:poor
    buy:rent own:rent active:inactive enabled:disabled on:behind schedule:delayed believe:nonsense trust:distrust
    optional:required include:exclude more:less increase:decrease before:after quiet:loud calm:nervous happy:unhappy
    confident:afraid brave:afraid city:country left-handed:right-handed retired:boss employed:unemployed join:leave
    keep:delete able:unable plenty:without lot:without daily:never every:never indoor:outdoor
    inside:outside metric:imperial metric:feet introvert:extrovert
    possible:impossible legal:illegal vegan:fish vegan:cheese vegan:steak vegetarian:steak
"""
OPPOSITES = tuple(entry.split(":") for entry in _OPPOSITES_TEXT.split())
"""Pairs of words with opposite meanings."""

SELF = frozenset({"i", "she", "he", "we", "they", "ich", "er", "sie", "wir"})
"""Words for the user, at the beginning of a statement."""

HAVING = frozenset({"have", "has", "had"})
INDEFINITE = frozenset({"a", "an", "another", "some"})
"""Words that introduce one of many things."""
OWNERS = frozenset({"the", "my", "his", "her", "their", "our", "your"})
DETERMINERS = frozenset({"a", "an", "the", "my", "his", "her", "their", "our", "your", "its"})

_ADVERBS_TEXT = """
    also always often usually sometimes still already just only really very currently ever even mostly i'm she's he's
    we're they're
"""
ADVERBS = frozenset(_ADVERBS_TEXT.split())
"""Words between the subject and its predicate."""

_PREDICATES_TEXT = """
    like:love,enjoy,adore,hate,dislike,fond,fan have:has,had,own,got speak:spoke,spoken,fluent know:knew play read
    allergic:allergy,intolerant visit:went,go,goes,been,travel,travelled watch:saw,see eat:ate drink:drank buy:bought
    collect learn:learnt,studies,studied,study grow:grew,grown interested:interest,curious afraid:fear,scared
    use:uses,used want:wish take:took cook wear:wore write:wrote,written support need sing:sang good:skilled there
"""
_SINGLE_TEXT = """
    live lives lived living reside resides resided named name called nickname age aged birthday born birthdate number
    email mail address weigh weighs weight tall height prefer prefers preferred favourite favorite rent price salary
    earn earns budget deadline due boss manager job works worked working work employed employer husband wife spouse
    married marries engaged eyes hair blood capital password username version size expires expire expiry starts start
    begins ends end wakes wake bedtime timezone language currency status owner stays stay stayed sleeps sleep bank banks
    commutes commute reports report votes vote based grew
"""


def _lemmas(text: str) -> dict[str, str]:
    """Words by their forms, from entries such as "speak:speaks,spoke"."""
    entries = ((entry.split(":")[0], re.split("[:,]", entry)) for entry in text.split())
    return {form: lemma for lemma, forms in entries for form in forms}


_TOPICS_TEXT = """
    home:live,lives,lived,living,moved,moves,resides,address
    work:works,worked,working,job,jobs,employed,unemployed,retired,retrained,fired,hired,profession
    marriage:married,marries,single,divorced,engaged,engagement,widowed,separated,wife,husband
    smoking:smoke,smokes,smoker,cigarettes alcohol:drinks,drink,drinking,sober,teetotaller
    birth:pregnant,baby,expecting,gave sleep:sleeps,owl,wakes,gets
"""
TOPICS = _lemmas(_TOPICS_TEXT)
"""Topics that people word in different ways, by those words."""
PREDICATES = _lemmas(_PREDICATES_TEXT)
"""Words that are often true of several things at a time, such as "speak" and "like", by their forms and synonyms."""
SINGLE = frozenset(_SINGLE_TEXT.split())
"""Attributes that have one value at a time, such as "lives" and "birthday"."""

SIDED = frozenset({"live", "lives", "work", "works"})
SIDES = {"as": "as", "at": "at", "for": "at", "from": "from", "in": "in", "on": "on", "with": "with"}
"""Prepositions after these verbs; statements with different ones do not conflict."""
UNITS = frozenset({"mg", "g", "kg", "ml", "l", "cm", "km", "mile", "miles", "cup", "cups", "tablet", "tablets"})

FORMER = frozenset({"lived", "resided", "stayed", "worked"})
"""Past verbs: several may have been true, one after the other."""
LASTING = frozenset({"since", "for", "now"})
"""Words that say that something still holds."""

ONCE = frozenset({"born", "died", "founded", "graduated", "married"})
"""One-time events: two dates for the same one exclude each other."""

REPLACING = frozenset({"instead", "switched", "moved", "replaced", "became", "only", "now", "changed"})
"""Words that say that a new value takes the place of the known one."""
ADDING = frozenset({"also", "too", "another", "additionally", "besides", "both", "second"})
"""Words that say that the known value stays."""
