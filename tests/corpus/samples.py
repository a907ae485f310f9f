"""Texts in four languages, written for these tests, and documents made of them."""

import random

ENGLISH = """The harbour master counted the boats twice before breakfast.
Nobody in the village remembered when the lighthouse had last been painted.
"You can't sail today," she said, pointing at the clouds over the headland.
A letter arrived on Tuesday, addressed to someone who had moved away in 1987.
The schoolteacher collected maps, bottles and unfinished stories.
Rain fell for three days, and the well-kept gardens turned to mud.
He sold 1,200 apples at the market; the rest were given to the children.
Mr. Hale walked home slowly because his shoes were new.
In the evening the fishermen repaired their nets and argued about politics.
The old clock struck seven, although everyone knew it was half past eight.
They found the missing dog asleep behind the bakery.
Spring came early that year, and with it the travelling musicians."""

GERMAN = """Der Bäcker öffnete seinen Laden früher als gewöhnlich.
Über den Dächern kreisten Möwen, obwohl das Meer weit entfernt war.
Die Schülerin übersetzte das Gedicht, ohne ein Wörterbuch aufzuschlagen.
Größere Städte hatten längst Straßenbahnen, das Dorf nur einen Fußweg.
Am 3. Oktober fuhr der letzte Zug um 18.45 Uhr ab.
Niemand wusste, warum die Brücke gesperrt blieb.
Das Donaudampfschifffahrtsgesellschaftskapitänspatent hing gerahmt an der Wand.
Er kaufte zwölf Äpfel, drei Brötchen und eine Zeitung.
Im Winter gefror der Fluss, und die Kinder liefen Schlittschuh."""

RUSSIAN = """Старый рыбак починил сеть и вышел в море до рассвета.
Учительница попросила детей нарисовать карту деревни.
На площади играл оркестр, хотя шёл сильный дождь.
Письмо пришло во вторник, но адресат давно переехал.
Мой дедушка собирал марки, бутылки и недописанные рассказы.
Весной река разлилась и затопила огороды.
Никто не помнил, когда в последний раз красили маяк.
Поезд опоздал на сорок минут, и пассажиры пили чай на вокзале."""

HINDI = """गाँव के लोग सुबह जल्दी उठकर खेतों की ओर चल पड़े।
बच्चों ने नदी के किनारे मिट्टी के घर बनाए।
शिक्षिका ने कहा कि कल विद्यालय बंद रहेगा।
बारिश तीन दिन तक होती रही और रास्ते कीचड़ से भर गए।
दादाजी पुरानी किताबें और सिक्के इकट्ठा करते थे।
मेले में संगीतकारों ने देर रात तक गीत गाए।
रेलगाड़ी देर से आई, इसलिए यात्री चाय पीते रहे।"""

LANGUAGES = {"en": ENGLISH, "de": GERMAN, "ru": RUSSIAN, "hi": HINDI}


def documents(language: str, count: int, seed: int = 0, longest: int = 40) -> list[str]:
    """Documents of 1 to `longest` sentences in paragraphs of up to five; no two alike but by chance."""
    sentences = LANGUAGES[language].split("\n")
    draw = random.Random(seed)
    made = []
    for number in range(count):
        chosen = [draw.choice(sentences) for _ in range(draw.randint(1, longest))]
        chosen[0] = f"{number}. {chosen[0]}"
        paragraphs = [" ".join(chosen[i : i + 5]) for i in range(0, len(chosen), 5)]
        made.append("\n".join(paragraphs))
    return made
