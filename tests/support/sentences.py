"""The same sentence in sixteen languages."""

SENTENCES = (
    "القطة نائمة على الأريكة، والاجتماع يوم الثلاثاء.",
    "猫在沙发上睡觉，会议在星期二。",
    "貓在沙發上睡覺，會議在星期二。",
    "De kat slaapt op de bank en de vergadering is op dinsdag.",
    "The cat sleeps on the sofa, and the meeting is on Tuesday, 12 October.",
    "Le chat dort sur le canapé, près de l'hôtel où elle a oublié ses clés.",
    "Die Katze schläft auf dem Sofa; die Straße heißt „Am Größenwahn“.",
    "Il gatto dorme sul divano e la riunione è martedì.",
    "猫はソファで眠っている。会議は火曜日です。",
    "고양이가 소파에서 자고 있고 회의는 화요일입니다.",
    "Kot śpi na kanapie, a spotkanie jest we wtorek.",
    "O gato dorme no sofá e a reunião é na terça-feira.",
    "Кошка спит на диване, а встреча во вторник.",
    "El gato duerme en el sofá y la reunión es el martes.",
    "แมวนอนอยู่บนโซฟา และการประชุมคือวันอังคาร",
    "Kedi kanepede uyuyor ve toplantı salı günü.",
)
