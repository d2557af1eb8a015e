"""The detector of health data: words of medicine beside a person."""

from collections.abc import Iterator, Sequence
from typing import Literal

import re2
from pydantic import BaseModel, ConfigDict, Field

from router.classify.detector import Form, Span
from router.types.request import Finding

# Words of medicine: what, named beside a person, says something about that person's health.

CONDITIONS = """
acute coronary syndrome, acute kidney injury, addison's disease, alcohol dependence, alcohol use disorder, alzheimer,
alzheimer's disease, amyotrophic lateral sclerosis, anaphylaxis, aneurysm, angina, ankylosing spondylitis, anorexia
nervosa, aortic stenosis, appendicitis, arrhythmia, arteriosclerosis, asthma, atherosclerosis, atrial fibrillation,
autism spectrum disorder, bacteremia, bipolar disorder, bluthochdruck, borderline personality disorder, brain tumor,
breast cancer, bronchiolitis, bronchitis, brustkrebs, bulimia, cancer du sein, cardiac arrest, cardiomyopathy, celiac
disease, cellulitis, cerebral palsy, cervical cancer, chlamydia, cholecystitis, chronic kidney disease, chronic
obstructive pulmonary disease, cirrhosis, colitis, colon cancer, colorectal cancer, congestive heart failure, copd,
coronary artery disease, crohn disease, crohn's disease, cystic fibrosis, cáncer de mama, deep vein thrombosis,
dementia, diabetes mellitus, diabetic ketoacidosis, diabetic neuropathy, diabetic retinopathy, diverticulitis, down
syndrome, eclampsia, ectopic pregnancy, eczema, emphysema, endocarditis, endometriosis, epilepsie, epilepsy,
fibromyalgia, gastritis, gastroenteritis, gastroesophageal reflux, genital herpes, gestational diabetes, glaucoma,
glioblastoma, gonorrhea, gout, graves' disease, guillain-barré, hashimoto, heart attack, heart failure, hemophilia,
hemorrhagic stroke, hepatitis a, hepatitis b, hepatitis c, hepatocellular carcinoma, herzinfarkt, herzinsuffizienz,
hipertensión arterial, hiv infection, hiv positive, hiv/aids, hodgkin lymphoma, huntington's disease,
hypercholesterolemia, hyperlipidemia, hypertension, hyperthyroidism, hypertonie, hypoglycemia, hypothyroidism,
infarctus du myocarde, infarto de miocardio, insuffisance cardiaque, insuficiencia cardiaca, irritable bowel syndrome,
ischemic stroke, kidney stones, leukemia, liver failure, lung cancer, lungenentzündung, lupus erythematosus, lyme
disease, lymphoma, macular degeneration, major depressive disorder, measles, melanoma, meningitis, mesothelioma,
metastases, metastatic, migraine, miscarriage, multiple myeloma, multiple sclerosis, multiple sklerose, muscular
dystrophy, myasthenia gravis, myocardial infarction, nephropathy, neuropathy, obsessive-compulsive disorder, opioid
use disorder, osteoarthritis, osteoporosis, ovarian cancer, pancreatic cancer, pancreatitis, parkinson's disease,
pericarditis, peritonitis, pneumonia, pneumothorax, polycystic ovary syndrome, post-traumatic stress disorder,
postpartum depression, preeclampsia, prostate cancer, psoriasis, psoriatic arthritis, pulmonary embolism, pulmonary
fibrosis, pyelonephritis, renal failure, respiratory failure, rheumatoid arthritis, sarcoidosis, schizophrenia,
schizophrenie, schlaganfall, sciatica, sclérose en plaques, scoliosis, sepsis, septic shock, sickle cell disease,
sleep apnea, spinal stenosis, suicidal ideation, suicide attempt, syphilis, thrombocytopenia, thrombosis, transient
ischemic attack, tuberculosis, type 1 diabetes, type 2 diabetes, ulcerative colitis, urinary tract infection,
vorhofflimmern, zuckerkrankheit
"""
DRUGS = """
abatacept, acetaminophen, acyclovir, adalimumab, albuterol, alendronate, allopurinol, alprazolam, amiodarone,
amitriptyline, amlodipine, amoxicillin, anastrozole, apixaban, aripiprazole, atenolol, atomoxetine, atorvastatin,
azathioprine, azithromycin, baclofen, bevacizumab, bisoprolol, budesonide, buprenorphine, bupropion, buspirone,
candesartan, capecitabine, carbamazepine, carboplatin, carvedilol, cefalexin, ceftriaxone, celecoxib, cetirizine,
ciprofloxacin, cisplatin, citalopram, clarithromycin, clindamycin, clonazepam, clonidine, clopidogrel, clozapine,
codeine, colchicine, cyclophosphamide, dabigatran, dapagliflozin, dexamethasone, diazepam, diclofenac, digoxin,
diltiazem, diphenhydramine, donepezil, doxorubicin, doxycycline, dulaglutide, duloxetine, empagliflozin, enalapril,
enoxaparin, ertapenem, escitalopram, esomeprazole, etanercept, ezetimibe, famotidine, fentanyl, finasteride,
fluconazole, fluoxetine, fluticasone, furosemide, gabapentin, gemcitabine, glimepiride, glipizide, glyburide,
haloperidol, hydrochlorothiazide, hydrocodone, hydromorphone, hydroxychloroquine, hydroxyzine, ibuprofen, imatinib,
infliximab, insulin aspart, insulin glargine, insulin lispro, ipratropium, irbesartan, isosorbide, isotretinoin,
ivermectin, ketamine, lamotrigine, lansoprazole, letrozole, levetiracetam, levofloxacin, levothyroxine, linezolid,
liraglutide, lisdexamfetamine, lisinopril, lithium carbonate, loperamide, loratadine, lorazepam, losartan, meloxicam,
memantine, meropenem, mesalamine, metformin, methadone, methotrexate, methylphenidate, methylprednisolone, metoprolol,
metronidazole, mirtazapine, misoprostol, montelukast, morphine, mycophenolate, naloxone, naltrexone, naproxen,
nebivolol, nifedipine, nitrofurantoin, nitroglycerin, nivolumab, nortriptyline, olanzapine, olmesartan, omeprazole,
ondansetron, oseltamivir, oxcarbazepine, oxycodone, paclitaxel, paliperidone, pantoprazole, paracetamol, paroxetine,
pembrolizumab, penicillin, phenobarbital, phenytoin, pioglitazone, pravastatin, prednisolone, prednisone, pregabalin,
promethazine, propranolol, quetiapine, ramipril, ranitidine, remdesivir, risperidone, ritonavir, rituximab,
rivaroxaban, rosuvastatin, sacubitril, salbutamol, semaglutide, sertraline, sildenafil, simvastatin, sitagliptin,
spironolactone, sulfamethoxazole, sumatriptan, tacrolimus, tadalafil, tamoxifen, tamsulosin, telmisartan, tenofovir,
terbinafine, testosterone cypionate, ticagrelor, tiotropium, tirzepatide, tizanidine, tocilizumab, topiramate,
torsemide, tramadol, trastuzumab, trazodone, triamcinolone, trimethoprim, valacyclovir, valproate, valsartan,
vancomycin, varenicline, venlafaxine, verapamil, vortioxetine, warfarin, zidovudine, zolpidem
"""
PROCEDURES = """
amputation, angiogram, angiography, angioplasty, appendectomy, arthroscopy, bone marrow biopsy, bone marrow
transplant, bronchoscopy, bypass surgery, caesarean section, cardiac catheterization, cardioversion, cesarean section,
chemotherapie, chemotherapy, chimiothérapie, cholecystectomy, colectomy, colonoscopy, colostomy, coronary artery
bypass, craniotomy, cystoscopy, darmspiegelung, dialysis, echocardiogram, electrocardiogram, electroconvulsive
therapy, electroencephalogram, endoscopy, gastric bypass, gastroscopy, hemodialysis, herzkatheter, hip replacement,
hysterectomy, immunotherapy, in vitro fertilization, intubated, intubation, kidney transplant, knee replacement,
koloskopie, laminectomy, laparoscopy, laparotomy, liver biopsy, liver transplant, lobectomy, lumbar puncture,
mammogram, mammography, mastectomy, mechanical ventilation, nephrectomy, pacemaker, pap smear, paracentesis, pet scan,
prostatectomy, quimioterapia, radiation therapy, radiotherapy, sigmoidoscopy, spinal fusion, splenectomy, stent
placement, strahlentherapie, thoracentesis, thoracotomy, thyroidectomy, tonsillectomy, tracheostomy, tubal ligation,
vasectomy, venipuncture
"""
HINTS = """
abscess, addiction, adhd, allergic to, allergy, anemia, anxiety disorder, arthritis, autism, biopsy, blood pressure,
blood sugar, blood test, cancer, chest pain, chief complaint, chronic pain, concussion, constipation, covid-19, ct
scan, depression, diabetes, diabetic, diagnose, diagnosed with, diagnosis, diarrhea, discharge summary, dizziness,
dyspnea, enfermedad, erkrankung, fever, fracture, fractured, headache, hepatitis, hernia, history of present illness,
hiv, hospitalized, infection, inpatient, insomnia, insulin, krankheit, maladie, medical history, medication,
medikament, menopause, mri, nausea, obesity, oncology, ordonnance, outpatient, overdose, palpitations, past medical
history, physical therapy, postoperative, pregnancy, pregnant, prescribed, prescription, prognosis, psychotherapy,
ptsd, rehab, relapse, seizure, shortness of breath, std test, stroke, surgery, symptom, syncope, transfusion, tumor,
tumour, ultrasound, vaccinated, vomiting, wheezing, x-ray
"""
"""Two of them say as much as one word of the others."""


# Health of a person: words of medicine in the same request as something that says whose they are.
#
# After HIPAA's 45 CFR 164.514(b)(2): health information is protected beside one of eighteen kinds of identifiers.

_IDENTIFYING = ("identifiers.", "names.")
"""Detectors whose findings say whose health it is, whatever class they raise to."""
_LEAST_HINTS = 2
_LEAST_DIGITS = 4
"""Of a number that a hospital or an insurer gives."""

_MONTH = r"(?i:jan|feb|m[aä]r|apr|ma[iy]|jun|jul|aug|sep|o[ck]t|nov|de[cz])[a-zä]*\.?"
_DATE = (
    r"(?:\d{1,2}[/.-]\d{1,2}[/.-](?:\d{4}|\d{2})\b|\d{4}-\d\d-\d\d\b"
    rf"|\d{{1,2}}(?:st|nd|rd|th|\.)? (?:of )?{_MONTH},? \d{{4}}\b|{_MONTH} \d{{1,2}}(?:st|nd|rd|th)?,? \d{{4}}\b)"
)
_NUMBER = r"[ \t]*(?:(?i:id|number|num\.?|no\.?|nr\.?|nummer|#)[ \t]*)?(?:[:#=-]|(?i:is)\b)?[ \t]*"
_NAME = r"\p{Lu}[\p{L}'’-]+(?:[ ,]{1,2}\p{Lu}\.?)?[ ,]{1,2}\p{Lu}[\p{L}'’-]+"
_NO_NAMES = re2.compile(
    r"(?i)(?:patient|care|health|safety|portal|services?|rights|information|satisfaction|education|advocates?|access"
    r"|protection|act|history|data|records?|summary|name|date|id|number|guide|center|centre|clinic|hospital|medical"
    r"|experience|engagement|outcomes?|monitoring|management|reported|flow|intake|form|forms)"
)
_LABS = (
    r"(?i)\b(?:hba1c|a1c|ldl|hdl|tsh|egfr|creatinine|ha?emoglobin|platelets?|wbc|troponin|psa|crp|bilirubin|ferritin"
    r"|cholesterol|triglycerides|glucose|potassium|sodium|hematocrit|inr|bun|spo2|bmi|cd4(?: count)?|viral load)\b"
    r"[ \t:=]{1,3}(?:is |was |of |at )?[<>]?\d+(?:[.,]\d+)?"
    r"|\b(?:bp|blood pressure|blutdruck)[ \t:=]{1,3}(?:is |was |of |at )?\d{2,3}/\d{2,3}\b"
)
_GAP = r"[ \t:#.(=-]{1,4}"
_CODES = (
    r"\b(?i:icd[- ]?(?:9|10|11)(?:[- ]?(?:cm|pcs|gm))?|diagnos[ie]s(?: codes?)?|diagnose|dx)"
    rf"{_GAP}(?i:codes?[ :]*)?[A-TV-Z]\d[0-9A-Z](?:\.[0-9A-Z]{{1,4}})?\b"
    rf"|\b(?i:cpt(?: codes?)?){_GAP}\d{{5}}\b|\b(?i:loinc){_GAP}\d{{3,5}}-\d\b"
    rf"|\b(?i:snomed(?: ct)?){_GAP}\d{{6,18}}\b|\b(?i:ndc){_GAP}\d{{4,5}}-\d{{3,4}}-\d{{1,2}}\b"
)


def _any_of(terms: str) -> str:
    """Whole words in any case, one or many, over the end of a line."""
    words = sorted({" ".join(term.split()) for term in terms.split(",")}, reverse=True)
    spaced = (str(re2.escape(word)).replace(r"\ ", r"[\s-]{1,2}") for word in words)
    return rf"(?i)\b(?:{'|'.join(spaced)})(?:e?s)?\b"


def _named(text: str, start: int, end: int) -> Iterator[Span]:
    """Two capitals after "patient" may be of a title or an office."""
    words = text[start:end].replace(",", " ").split()[-2:]
    if not any(_NO_NAMES.fullmatch(word) for word in words):
        yield Span(start, end)


def _numbered(text: str, start: int, end: int) -> Iterator[Span]:
    if sum(map(str.isdigit, text[start:end])) >= _LEAST_DIGITS:
        yield Span(start, end)


_IDENTIFIERS = (
    Form(
        "mrn",
        r"\b(?i:mrn|medical record|patient (?:id|number|no\.?|nr\.?|#)|chart (?:number|no\.?|#)"
        rf"|patienten(?:nummer|-?nr\.?|-?id)){_NUMBER}[A-Z]{{0,4}}-?\d[0-9A-Z-]{{3,}}\b",
        _numbered,
    ),
    Form(
        "member_id",
        r"\b(?i:(?:member|subscriber|beneficiary|medicare|medicaid|health (?:plan|insurance)|insurance|versicherten"
        r"|krankenkassen)[ -]?(?:policy |member |card )?(?:id|number|no\.?|nummer|nr\.?|#))"
        rf"{_NUMBER}[A-Z]{{0,4}}[ -]?\d[0-9A-Z-]{{4,}}\b",
        _numbered,
    ),
    Form(
        "patient",
        r"\b(?:(?i:patient(?:in)?(?:'s)?(?: name)?|pt\.?)[ \t]*[:=-]?[ \t]+(?:is |named )?"
        rf"(?:(?i:mr|mrs|ms|miss|herr|frau)\.? )?{_NAME}"
        r"|(?:Mr|Mrs|Ms|Miss|Herr|Frau|Mme|Sra|Sr)\.? \p{Lu}['’]?\p{L}[\p{L}'’-]+)",
        _named,
    ),
    Form(
        "birth_date",
        r"\b(?i:dob|d\.o\.b\.?|date of birth|birth ?date|born(?: on)?|geburtsdatum|geboren(?: am)?|geb\."
        rf"|date de naissance|née? le|fecha de nacimiento)[ \t:=.-]*{_DATE}",
    ),
    Form(
        "admission",
        r"\b(?i:admitted(?: to [\w ]{1,40})?(?: on)?|admission(?: date)?"
        r"|date of (?:admission|discharge|service|surgery|death)|discharged?(?: date| on| home on)?"
        rf"|aufnahme(?:datum)?(?: am)?|entlassen am)[ \t:=-]*{_DATE}",
    ),
)
_TERMS = (
    Form("condition", _any_of(CONDITIONS)),
    Form("drug", _any_of(DRUGS)),
    Form("procedure", _any_of(PROCEDURES)),
    Form("lab", _LABS),
    Form("code", _CODES),
)
_HINTS = Form("hint", _any_of(HINTS))
_OWN_IDENTIFIERS = frozenset(f"health.{form.name}" for form in _IDENTIFIERS)
_OWN_HINT = f"health.{_HINTS.name}"


class Health(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True, hide_input_in_errors=True)
    kind: Literal["health"]
    data_class: str = Field(alias="class")

    @property
    def forms(self) -> tuple[Form, ...]:
        return (*_TERMS, _HINTS, *_IDENTIFIERS)

    def conclude(self, own: Sequence[Finding], found: Sequence[Finding]) -> Sequence[Finding]:
        """Neither the words nor the person alone are anything."""
        if _medical(own) and _identified(own, found):
            return own
        return ()


def _medical(own: Sequence[Finding]) -> bool:
    hints = {(one.path, one.start) for one in own if one.detector == _OWN_HINT}
    return len(hints) >= _LEAST_HINTS or any(
        one.detector != _OWN_HINT and one.detector not in _OWN_IDENTIFIERS for one in own
    )


def _identified(own: Sequence[Finding], found: Sequence[Finding]) -> bool:
    return any(one.detector in _OWN_IDENTIFIERS for one in own) or any(
        one.detector.startswith(_IDENTIFYING) for one in found
    )
