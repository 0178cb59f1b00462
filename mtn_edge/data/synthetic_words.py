"""The words of the simulated log: kinds of things, the things, and what people ask about them.

Each kind has five groups of four rivals (things people compare) and three intents of three attributes, in the order
in which they are usually asked. An attribute is its pattern with the thing and its text when the thing is left out.
Brands are invented.
"""

from __future__ import annotations

from dataclasses import dataclass

GROUPS, RIVALS, INTENTS, ATTRIBUTES = 5, 4, 3, 3
Attribute = tuple[str, str]


@dataclass(frozen=True)
class Kind:
    """A kind of things and what is asked about them."""

    name: str
    """For people who read the simulator's output."""
    things: tuple[str, ...]
    """20 names: group after group, each group's most popular first."""
    attributes: tuple[Attribute, ...]
    """9 attributes: intent after intent, each in its usual order."""


def _brands(brands: str, products: str) -> tuple[str, ...]:
    return tuple(f"{brand} {product}" for product in products.split(", ") for brand in brands.split(", "))


def _names(*groups: str) -> tuple[str, ...]:
    return tuple(name for group in groups for name in group.split(", "))


def _after(*words: str) -> tuple[Attribute, ...]:
    return tuple((f"{{}} {word}", word) for word in words)


_GOODS = _after("reviews", "price", "near me", "problems", "repair", "manual", "pictures", "parts", "for sale")

KINDS = (
    Kind(
        "electronics",
        _brands("kestrel, norvale, ostra, lumen", "laptop, digital camera, cell phone, printer, mp3 player"),
        _GOODS,
    ),
    Kind(
        "cities",
        _names(
            "boston, providence, hartford, portland maine",
            "orlando, miami, tampa, key west",
            "chicago, milwaukee, detroit, indianapolis",
            "las vegas, phoenix, reno, tucson",
            "seattle, san francisco, san diego, sacramento",
        ),
        (
            ("flights to {}", "cheap flights"),
            ("hotels in {}", "hotels"),
            ("{} car rental", "car rental"),
            ("things to do in {}", "things to do"),
            ("map of {}", "map"),
            ("{} weather", "weather"),
            ("apartments in {}", "apartments"),
            ("jobs in {}", "jobs"),
            ("{} public schools", "public schools"),
        ),
    ),
    Kind(
        "cars",
        _brands("meridian, caldera, torrent, halden", "sedan, pickup truck, minivan, convertible, hybrid"),
        _GOODS,
    ),
    Kind(
        "recipes",
        _names(
            "chicken soup, clam chowder, beef stew, split pea soup",
            "lasagna, meatloaf, pot roast, stuffed peppers",
            "banana bread, zucchini bread, corn bread, irish soda bread",
            "cheesecake, apple pie, carrot cake, lemon bars",
            "potato salad, coleslaw, pasta salad, egg salad",
        ),
        (
            ("{} recipe", "recipe"),
            ("easy {}", "easy recipe"),
            ("{} ingredients", "ingredients"),
            ("calories in {}", "calories"),
            ("low fat {}", "low fat"),
            ("{} nutrition facts", "nutrition facts"),
            ("best {}", "best rated"),
            ("{} restaurant", "restaurant"),
            ("{} near me", "near me"),
        ),
    ),
    Kind(
        "dogs",
        _names(
            "golden retriever, labrador retriever, irish setter, cocker spaniel",
            "german shepherd, rottweiler, doberman, great dane",
            "yorkshire terrier, shih tzu, maltese, toy poodle",
            "beagle, basset hound, bloodhound, greyhound",
            "border collie, australian shepherd, corgi, sheltie",
        ),
        _after(
            *("puppies", "breeders", "near me", "training", "health problems", "food"),
            *("pictures", "temperament", "names"),
        ),
    ),
    Kind(
        "careers",
        _names(
            "registered nurse, dental hygienist, medical assistant, pharmacy technician",
            "electrician, plumber, carpenter, welder",
            "paralegal, court reporter, bail bondsman, notary public",
            "elementary teacher, school counselor, librarian, tutor",
            "truck driver, flight attendant, pilot, bus driver",
        ),
        _after(
            *("salary", "job description", "requirements", "schools", "certification", "online courses"),
            *("jobs", "resume", "near me"),
        ),
    ),
    Kind(
        "appliances",
        _brands(
            "hearthway, bellmont, arctis, dovecote",
            "washing machine, refrigerator, dishwasher, vacuum cleaner, coffee maker",
        ),
        _GOODS,
    ),
    Kind(
        "plants",
        _names(
            "tomato, cucumber, bell pepper, eggplant",
            "rose, peony, hydrangea, lilac",
            "japanese maple, dogwood, magnolia, redbud",
            "basil, rosemary, lavender, thyme",
            "orchid, african violet, peace lily, spider plant",
        ),
        (
            ("growing {}", "growing tips"),
            ("when to plant {}", "when to plant"),
            ("{} fertilizer", "fertilizer"),
            ("{} problems", "problems"),
            ("{} yellow leaves", "yellow leaves"),
            ("pruning {}", "pruning"),
            ("{} for sale", "for sale"),
            ("{} pictures", "pictures"),
            ("{} near me", "near me"),
        ),
    ),
    Kind(
        "health",
        _names(
            "asthma, bronchitis, sinus infection, hay fever",
            "diabetes, high blood pressure, high cholesterol, gout",
            "migraine, vertigo, tension headache, tinnitus",
            "back pain, sciatica, arthritis, tendonitis",
            "eczema, psoriasis, poison ivy, hives",
        ),
        (
            ("{} symptoms", "symptoms"),
            ("{} causes", "causes"),
            ("how is {} diagnosed", "diagnosis"),
            ("{} treatment", "treatment"),
            ("{} medication", "medication"),
            ("home remedies for {}", "home remedies"),
            ("{} diet", "diet"),
            ("{} pictures", "pictures"),
            ("{} doctors near me", "doctors near me"),
        ),
    ),
    Kind(
        "sports gear",
        _brands("trailmark, vantero, summit ridge, corsair", "mountain bike, treadmill, tent, kayak, running shoes"),
        _GOODS,
    ),
    Kind(
        "islands",
        _names(
            "maui, kauai, oahu, big island hawaii",
            "aruba, jamaica, barbados, st lucia",
            "bahamas, bermuda, cayman islands, turks and caicos",
            "crete, santorini, mykonos, corfu",
            "bali, phuket, fiji, tahiti",
        ),
        (
            ("flights to {}", "cheap flights"),
            ("{} resorts", "all inclusive resorts"),
            ("{} vacation packages", "vacation packages"),
            ("things to do in {}", "things to do"),
            ("map of {}", "map"),
            ("{} weather", "weather"),
            ("{} beaches", "beaches"),
            ("{} pictures", "pictures"),
            ("{} weddings", "weddings"),
        ),
    ),
    Kind(
        "instruments",
        _names(
            "acoustic guitar, electric guitar, bass guitar, ukulele",
            "piano, digital piano, keyboard, accordion",
            "violin, viola, cello, mandolin",
            "flute, clarinet, saxophone, oboe",
            "trumpet, trombone, french horn, tuba",
        ),
        (
            ("{} lessons", "lessons"),
            ("{} sheet music", "sheet music"),
            ("how to tune a {}", "how to tune"),
            ("used {}", "used"),
            ("{} price", "price"),
            ("{} near me", "near me"),
            ("{} parts", "parts"),
            ("{} repair", "repair"),
            ("{} for sale", "for sale"),
        ),
    ),
)
"""The most popular kind first."""
