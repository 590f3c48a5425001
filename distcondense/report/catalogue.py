"""What data catalogues read of a release: Croissant, HealthDCAT-AP, and an entry for a registry of deployments.

All three are made of what is released (the schema, the statement, file digests) and of what the custodian wrote about
it (`ReleaseInfo`), and of nothing else: no question is asked for them. Numbers of persons are the noisy ones that the
statement holds already.

- `croissant.json`: Croissant 1.1 of the synthetic table, with the vocabulary's responsible-AI part.
- `healthdcat.jsonld`: HealthDCAT-AP (release 5) of the *hospital's own, non-public* data set, of which the release is
  a sample. It is written where everything that the profile demands of such a data set is known.
- `deployment.json`: who protects whom with which ε, in the fields of the registry that NIST and OpenDP propose.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from distcondense.data.schema import Column
from distcondense.privacy.statement import Privacy, rounded_up
from distcondense.report.datasheet import BIASES, TRUST, quotable
from distcondense.runs.release import (
    CROISSANT,
    DEPLOYMENT,
    HEALTH_RECORD,
    MANUAL,
    csv_name,
    missing_for_health_record,
    software,
)
from distcondense.runs.result import Result

LIMITATIONS = (
    "Rows were chosen because they teach models: no p-values, no confidence intervals, nothing about small groups.",
    "Never validate a model on these rows: they are labelled by a model. Test on real patients.",
)
IMPACT = (
    "Others can train and try models without access to patients. A model that was trained on these rows carries their "
    "limits to whoever it is used on, members of small groups first."
)
USES = ("Training and trying models", "Teaching", "Preparing an analysis that is then run on real patients")
CROISSANT_CONTEXT: dict[str, Any] = {
    "@language": "en",
    "@vocab": "https://schema.org/",
    "arrayShape": "cr:arrayShape",
    "citeAs": "cr:citeAs",
    "column": "cr:column",
    "conformsTo": "dct:conformsTo",
    "containedIn": "cr:containedIn",
    "cr": "http://mlcommons.org/croissant/",
    "data": {"@id": "cr:data", "@type": "@json"},
    "dataType": {"@id": "cr:dataType", "@type": "@vocab"},
    "dct": "http://purl.org/dc/terms/",
    "description": {"@container": "@language"},
    "equivalentProperty": "cr:equivalentProperty",
    "examples": {"@id": "cr:examples", "@type": "@json"},
    "extract": "cr:extract",
    "field": "cr:field",
    "fileObject": "cr:fileObject",
    "fileProperty": "cr:fileProperty",
    "fileSet": "cr:fileSet",
    "format": "cr:format",
    "includes": "cr:includes",
    "isArray": "cr:isArray",
    "isLiveDataset": "cr:isLiveDataset",
    "jsonPath": "cr:jsonPath",
    "key": "cr:key",
    "md5": "cr:md5",
    "name": {"@container": "@language"},
    "parentField": "cr:parentField",
    "path": "cr:path",
    "prov": "http://www.w3.org/ns/prov#",
    "rai": "http://mlcommons.org/croissant/RAI/",
    "recordSet": "cr:recordSet",
    "references": "cr:references",
    "regex": "cr:regex",
    "repeated": "cr:repeated",
    "replace": "cr:replace",
    "samplingRate": "cr:samplingRate",
    "sc": "https://schema.org/",
    "separator": "cr:separator",
    "source": "cr:source",
    "subField": "cr:subField",
    "transform": "cr:transform",
}
DCAT_CONTEXT = {
    "adms": "http://www.w3.org/ns/adms#",
    "csvw": "http://www.w3.org/ns/csvw#",
    "dcat": "http://www.w3.org/ns/dcat#",
    "dcatap": "http://data.europa.eu/r5r/",
    "dct": "http://purl.org/dc/terms/",
    "foaf": "http://xmlns.com/foaf/0.1/",
    "healthdcatap": "http://healthdataportal.eu/ns/health#",
    "rdfs": "http://www.w3.org/2000/01/rdf-schema#",
    "spdx": "http://spdx.org/rdf/terms#",
    "vcard": "http://www.w3.org/2006/vcard/ns#",
    "xsd": "http://www.w3.org/2001/XMLSchema#",
}
AUTHORITY = "http://publications.europa.eu/resource/authority"
EHDS = "http://data.europa.eu/eli/reg/2025/327/oj"  # the regulation: of the data set and of its distributions
MEDIA_TYPES = {"csv": "text/csv", "gz": "application/gzip", "parquet": "application/vnd.apache.parquet"}
NUMBERS = {"continuous": ("sc:Float", "xsd:double"), "integer": ("sc:Integer", "xsd:integer")}


def catalogue(sets: Mapping[str, Result], digests: Mapping[str, str]) -> dict[str, str]:
    """The catalogue files of a run's sets by their tables' names, from the SHA-256 of every released file by name."""
    first = next(iter(sets.values()))
    texts = {CROISSANT: croissant(sets, digests), DEPLOYMENT: deployment(first)}
    if not missing_for_health_record(first.info):
        texts[HEALTH_RECORD] = health_record(first, digests)
    return {name: json.dumps(data, indent=2, ensure_ascii=False) + "\n" for name, data in texts.items()}


def title_of(first: Result) -> str:
    """What the release is called, where nobody gave it a name: by its outcome."""
    return first.info.title or f"Synthetic patients for models of {' and '.join(first.kind.names)}"


def description_of(first: Result) -> str:
    """What the custodian says of it, and what it is."""
    said = f"{first.info.description} " if first.info.description else ""
    return f"{said}A synthetic table made by distcondense (method {first.privacy.method}). {first.privacy.sentence()}"


def columns_of(first: Result) -> tuple[Column, ...]:
    """Every column of the released table: features, outcome, our own."""
    return (*first.schema.columns, *first.schema.outcome, *first.schema.added)


def croissant(sets: Mapping[str, Result], digests: Mapping[str, str]) -> dict[str, Any]:
    """Croissant 1.1 metadata of the released tables."""
    first = next(iter(sets.values()))
    info, tables = first.info, [name for name in digests if name.rpartition(".")[2] in MEDIA_TYPES]
    whole: dict[str, Any] = {
        "@context": CROISSANT_CONTEXT,
        "@type": "sc:Dataset",
        "conformsTo": ["http://mlcommons.org/croissant/1.1", "http://mlcommons.org/croissant/RAI/1.0"],
        "name": title_of(first),
        "description": description_of(first),
        "version": info.version or "1.0.0",
        "keywords": ["synthetic data", "differential privacy", *info.keywords],
        "distribution": [_file(name, digests[name]) for name in tables],
        "recordSet": [_records(name, one) for name, one in sets.items() if csv_name(name, one.frame) in digests],
        "rai:dataCollection": "No row was collected: all were made from noisy answers about patients."
        if first.privacy.charged
        else "No row was collected: all were made by a program that read patients.",
        "rai:personalSensitiveInformation": first.privacy.paragraph(),
        "rai:dataLimitations": list(LIMITATIONS),
        "rai:dataBiases": BIASES,
        "rai:dataUseCases": list(USES),
        "rai:dataReleaseMaintenancePlan": "None: a release is final. A further one costs ε, and costs add up.",
        "rai:dataSocialImpact": IMPACT,
        "rai:hasSyntheticData": True,
        "prov:wasGeneratedBy": {
            "@type": "prov:Activity",
            "prov:label": f"distcondense {software()['version']}, method {first.privacy.method}",
        },
    }
    given = {
        "license": info.licence,
        "url": info.url,
        "creator": {"@type": "sc:Organization", "name": info.publisher} if info.publisher else "",
        "publisher": {"@type": "sc:Organization", "name": info.publisher} if info.publisher else "",
        "datePublished": info.published,
        "citeAs": info.cite_as,
        "prov:wasDerivedFrom": {"@id": info.identifier} if info.identifier else "",
    }
    return whole | {name: value for name, value in given.items() if value}


def _file(name: str, digest: str) -> dict[str, Any]:
    kind = name.rpartition(".")[2]
    return {
        "@type": "cr:FileObject",
        "@id": name,
        "name": name,
        "contentUrl": name,
        "encodingFormat": MEDIA_TYPES[kind],
        "sha256": digest,
    }


def _records(name: str, one: Result) -> dict[str, Any]:
    held = {column.name: column for column in columns_of(one)}
    return {
        "@type": "cr:RecordSet",
        "@id": name,
        "name": name,
        "description": f"{len(one.frame):,} synthetic rows; columns that begin with distcondense_ are no features.",
        "field": [
            {
                "@type": "cr:Field",
                "@id": f"{name}/{column}",
                "name": column,
                "description": described(held[column]) if column in held else column,
                "dataType": NUMBERS.get(held[column].kind if column in held else "", ("sc:Text", ""))[0],
                "source": {"fileObject": {"@id": csv_name(name, one.frame)}, "extract": {"column": column}},
            }
            for column in one.frame.columns
        ],
    }


def described(column: Column) -> str:
    """A column's meaning with its public bounds or categories, all of them, and its unit."""
    parts = [column.meaning] if column.meaning else []
    if column.low is not None and column.high is not None:
        parts.append(f"from {column.low:g} to {column.high:g}" + (f" {column.unit}" if column.unit else ""))
    elif column.unit:
        parts.append(f"in {column.unit}")
    if column.categories:
        parts.append("one of: " + ", ".join(map(str, column.categories)))
    if column.domain == "private":
        parts.append("bounds or categories found with noise")
    return "; ".join(parts) or column.name


# -- HealthDCAT-AP ----------------------------------------------------------------------------------------------------


def health_record(first: Result, digests: Mapping[str, str]) -> dict[str, Any]:
    """HealthDCAT-AP of the hospital's non-public data set, with the release as its sample."""
    info, privacy = first.info, first.privacy
    # of the patients' table: what the release says of its own outcome column is about synthetic rows
    outcome = [replace(column, meaning="The outcome") for column in first.schema.outcome]
    record: dict[str, Any] = {
        "@context": DCAT_CONTEXT,
        "@id": info.identifier,
        "@type": "dcat:Dataset",
        "dct:title": _text(info.title),
        "dct:description": _text(info.description),
        "dct:identifier": info.identifier,
        "dct:accessRights": {"@id": f"{AUTHORITY}/access-right/NON_PUBLIC", "@type": "dct:RightsStatement"},
        "dcatap:applicableLegislation": {"@id": EHDS},
        "dcat:theme": {"@id": f"{AUTHORITY}/data-theme/HEAL"},
        "dct:type": {"@id": f"{AUTHORITY}/dataset-type/{'PERSONAL' if privacy.unit == 'person' else 'OTHER'}"},
        "dcat:keyword": [_text(word) for word in (info.keywords or first.kind.names)],
        "dct:provenance": {"@type": "dct:ProvenanceStatement", "rdfs:label": _text(info.provenance or PROVENANCE)},
        "dcat:contactPoint": _contact(info.publisher, info.contact),
        "dct:publisher": _agent(info.publisher, info.contact),
        "healthdcatap:hdab": _agent(info.hdab, info.hdab_contact),
        "healthdcatap:healthCategory": {"@id": info.health_category},
        "dcat:distribution": {
            "@type": "dcat:Distribution",
            "dct:title": _text("The patients' table, which is not published"),
            "dcat:accessURL": {"@id": info.access_url or info.identifier},
            "dcatap:applicableLegislation": {"@id": EHDS},
            "dct:format": {"@id": f"{AUTHORITY}/file-type/PARQUET"},
            "dct:rights": _rights("Access only as the health data access body permits."),
        },
        "adms:sample": [
            {
                "@type": "dcat:Distribution",
                "dct:title": _text(f"Synthetic sample: {name}"),
                "dct:description": _text(description_of(first)),
                "dcat:accessURL": {"@id": f"{(info.url or info.identifier).rstrip('/')}/{name}"},
                "dcatap:applicableLegislation": {"@id": EHDS},
                "dcat:mediaType": {"@id": f"https://www.iana.org/assignments/media-types/{MEDIA_TYPES[kind]}"},
                "spdx:checksum": {
                    "@type": "spdx:Checksum",
                    "spdx:algorithm": {"@id": "spdx:checksumAlgorithm_sha256"},
                    "spdx:checksumValue": {"@type": "xsd:hexBinary", "@value": digests[name]},
                },
                "dct:rights": _rights(privacy.paragraph()),
            }
            for name in digests
            if (kind := name.rpartition(".")[2]) in MEDIA_TYPES
        ],
        "csvw:table": {
            "@type": "csvw:Table",
            "csvw:tableSchema": {
                "@type": "csvw:Schema",
                "csvw:column": [
                    {
                        "@type": "csvw:Column",
                        "csvw:name": column.name,
                        "csvw:title": _text(column.meaning or column.name),
                        "dct:description": _text(described(column)),
                        "csvw:datatype": {"@id": NUMBERS.get(column.kind, ("", "xsd:string"))[1]},
                    }
                    for column in (*first.schema.columns, *outcome)
                ],
            },
        },
    }
    return record | _optional(first)


PROVENANCE = "Routine records of the publisher, from which a synthetic sample was made by distcondense."


def _optional(first: Result) -> dict[str, Any]:
    """What is worth filling and already released or declared; no question is asked for it."""
    info, counted = first.info, first.privacy.parameters.get("rows_noisy_estimate")
    age = next((c for c in first.schema.columns if c.name.lower() == "age" and c.low is not None), None)
    found: dict[str, Any] = {}
    if counted is not None and first.privacy.charged:
        found["healthdcatap:numberOfRecords"] = _whole(max(counted, 0))
        if first.privacy.unit == "person" and first.privacy.parameters.get("rows_per_person") == 1:
            found["healthdcatap:numberOfUniqueIndividuals"] = _whole(max(counted, 0))
    if age is not None and age.high is not None and age.domain == "declared":
        found["healthdcatap:minTypicalAge"] = _whole(age.low)
        found["healthdcatap:maxTypicalAge"] = _whole(age.high)
    if info.population:
        found["healthdcatap:populationCoverage"] = _text(info.population)
    if info.coding_systems:
        found["healthdcatap:hasCodingSystem"] = [{"@id": one, "@type": "dct:Standard"} for one in info.coding_systems]
    return found


def _text(words: str) -> dict[str, str]:
    return {"@language": "en", "@value": words}


def _whole(number: float | None) -> dict[str, str]:
    return {"@type": "xsd:nonNegativeInteger", "@value": str(round(number or 0))}


def _rights(words: str) -> dict[str, Any]:
    return {"@type": "dct:RightsStatement", "rdfs:label": _text(words)}


def _contact(name: str, address: str) -> dict[str, Any]:
    mail = "@" in address and "://" not in address
    where = {"vcard:hasEmail": {"@id": f"mailto:{address.removeprefix('mailto:')}"}}
    return {"@type": "vcard:Kind", "vcard:fn": name, **(where if mail else {"vcard:hasURL": {"@id": address}})}


def _agent(name: str, contact: str) -> dict[str, Any]:
    return {"@type": "foaf:Agent", "foaf:name": _text(name), "dcat:contactPoint": _contact(name, contact)}


# -- a registry of deployments ----------------------------------------------------------------------------------------


def deployment(first: Result) -> dict[str, Any]:
    """One deployment, for a registry: who protects whom, how much, by what, and how to check it."""
    privacy, info, made = first.privacy, first.info, software()
    return {
        "name": title_of(first),
        "data_curator": info.publisher or None,
        "contact": info.contact or None,
        "intended_use": list(USES),
        "product": {"type": "synthetic data", "documentation": MANUAL, "region": info.population or None},
        "model": {"name": TRUST.partition(": ")[0], "actors": TRUST.partition(": ")[2]},
        "privacy_definition": {
            "flavor": "(ε, δ)-differential privacy" if privacy.charged else None,
            "guarantee": privacy.guarantee,
            "statement": privacy.sentence(),
            "unit": privacy.unit,
            "neighboring": privacy.neighbouring,
            "epsilon": _epsilon(privacy),
            "delta": privacy.delta,
            "epsilon_with_earlier_releases": privacy.epsilon_with_earlier_runs,
            "static_or_continual": "static: one release; further ones add up",
        },
        "mechanisms": [privacy.noise_source, f"method {privacy.method}"],
        "accounting": {
            "composition": "all answers of the run, replayed from privacy.json by two accountants",
            "post_processing": "everything in the release is computed from the noisy answers",
            "choice_of_parameters": "ε and δ were set by the curator before a record was read",
        }
        if privacy.charged
        else {"composition": "a paper's own accounting" if privacy.epsilon is not None else "none"},
        "implementation": {"software": "distcondense", **made, "verification": "distcondense privacy verify"},
        "summary": quotable(first, [len(first.frame)]),
    }


def _epsilon(privacy: Privacy) -> str | None:
    """Rounded up, with the guarantee it belongs to."""
    return None if privacy.epsilon is None else f"{rounded_up(privacy.epsilon, 6)} ({privacy.guarantee})"
