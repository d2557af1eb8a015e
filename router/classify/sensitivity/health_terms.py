"""Words of medicine: what, named beside a person, says something about that person's health."""

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
