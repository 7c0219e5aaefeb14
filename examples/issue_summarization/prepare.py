"""Make the data folder: fetch the issues, make the vocabulary, write every issue as numbers.

drumline runs this once, before any replica starts (`data.prepare` in drumline.yml), and the folder appears when it is
complete: replicas need not wait for files. After an interruption, the next run continues, a download at the byte at
which it was interrupted.

The issues are a CSV file with the columns `issue_title` and `body`, as in the Kubeflow guide, or a zip with one in it:
from `--url`, or github_issues.csv in the current folder. Without either, issues are generated.

Needs Python only.
"""

import argparse
import csv
import hashlib
import itertools
import json
import os
import random
import re
import shutil
import sys
import time
import zipfile
from collections import Counter
from collections.abc import Iterable
from http.client import HTTPException
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

ISSUES = "github_issues.csv"
PADDING, UNKNOWN, START, END = range(4)  # the first numbers; all others are words
BODY_WORDS, BODY_LENGTH = 8000, 70  # at most, as in the guide
TITLE_WORDS, TITLE_LENGTH = 4500, 12
WAITS = (0, 0, 1, 3, 7)  # seconds before each try of a download


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--url", default="", help="where to fetch the issues from")
    parser.add_argument("--sha256", default="", help="what the digest of that has to be")
    parser.add_argument("--issues", type=int, default=6000, help="how many to use at most")
    args = parser.parse_args()
    prepare(Path(os.environ.get("DATA_DIR", "data")), args.url, args.sha256, args.issues)


def prepare(folder: Path, url: str = "", sha256: str = "", count: int = 6000) -> None:
    """Fill the folder; existing files are kept."""
    folder.mkdir(parents=True, exist_ok=True)
    issues = folder / ISSUES
    if issues.exists():
        print(f"{issues} is there already", flush=True)
    elif url:
        fetch(url, issues, sha256)
    elif Path(ISSUES).exists():
        shutil.copyfile(ISSUES, partial(issues))
        partial(issues).rename(issues)
    else:
        make_up(issues, count)
    if not (folder / "vocabulary.json").exists():
        number(issues, folder, count)


# Fetching


def fetch(url: str, issues: Path, sha256: str) -> None:
    """Download the issues: a CSV file or a zip with one."""
    whole = issues.with_name("download")
    for wait_seconds in WAITS:
        time.sleep(wait_seconds)
        try:
            if not whole.exists():
                download(url, whole)
            break
        except (OSError, HTTPException) as error:
            if isinstance(error, HTTPError) and error.code < 500:
                sys.exit(f"{url}: {error}")  # trying again would not help
            print(f"the download was cut: {error}", flush=True)
    else:
        sys.exit(f"{url} did not come, tried {len(WAITS)} times; what there is of it is kept for the next run")
    with whole.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    if sha256 and digest != sha256:
        whole.unlink()
        sys.exit(f"{url} has the SHA-256 {digest} and not {sha256}: removed")
    print(f"downloaded {whole.stat().st_size} bytes, SHA-256 {digest}", flush=True)
    if zipfile.is_zipfile(whole):
        with zipfile.ZipFile(whole) as archive, partial(issues).open("wb") as file:
            name = next(name for name in archive.namelist() if name.endswith(".csv"))
            shutil.copyfileobj(archive.open(name), file)
        partial(issues).rename(issues)
        whole.unlink()
    else:
        whole.rename(issues)


def download(url: str, whole: Path) -> None:
    """Download the missing part of a file, which is renamed to `whole` when it is complete."""
    part, version = partial(whole), whole.with_name("download.version")
    have = part.stat().st_size if part.exists() and version.exists() else 0
    # If-Range: if the file has changed meanwhile, the server sends all of it.
    headers = {"Range": f"bytes={have}-", "If-Range": version.read_text()} if have else {}
    try:
        answer = urlopen(Request(url, headers=headers), timeout=60)
    except HTTPError as error:
        if error.code == 416:  # there is nothing after the last byte: start again
            version.unlink()
            raise ConnectionError("begun anew") from None
        raise
    with answer, part.open("ab" if answer.status == 206 else "wb") as file:
        have = file.tell()
        size = have + int(answer.headers["Content-Length"])
        print(f"downloading {url} from byte {have} of {size}", flush=True)
        version.unlink(missing_ok=True)
        if known := answer.headers["ETag"] or answer.headers["Last-Modified"]:
            version.write_text(known)
        shutil.copyfileobj(answer, file)
        if file.tell() != size:
            raise ConnectionError(f"{file.tell()} of {size} bytes came")
    part.rename(whole)
    version.unlink(missing_ok=True)


def partial(path: Path) -> Path:
    """Return the name of a file that is not complete."""
    return path.with_name(f"{path.name}.part")


# Words and numbers


def number(issues: Path, folder: Path, count: int) -> None:
    """Count the words and write the issues as numbers; the vocabulary is written last, when all is complete."""
    csv.field_size_limit(sys.maxsize)  # some bodies are long
    with issues.open(newline="", encoding="utf-8", errors="replace") as file:
        rows = csv.DictReader(file)
        if not {"issue_title", "body"} <= set(rows.fieldnames or ()):
            issues.unlink()
            sys.exit("the issues have no columns `issue_title` and `body`: removed")
        texts = [(words(row["body"]), words(row["issue_title"])) for row in itertools.islice(rows, count)]
    random.Random(1).shuffle(texts)
    kept = len(texts) // 10 or 1
    held_out, train = texts[:kept], texts[kept:]
    vocabulary = {
        "body": most_common((body for body, _ in train), BODY_WORDS),
        "title": most_common((title for _, title in train), TITLE_WORDS),
        "body_length": min(BODY_LENGTH, max(len(body) for body, _ in train)),
        "title_length": min(TITLE_LENGTH, max(len(title) for _, title in train)) + 1,  # with its end
        "train": len(train),
        "held_out": len(held_out),
    }
    body_numbers, title_numbers = ({word: at for at, word in enumerate(vocabulary[of])} for of in ("body", "title"))
    for name, part in ("train", train), ("held_out", held_out):
        with (folder / f"{name}.txt").open("w") as file:
            for body, title in part:
                before = [body_numbers.get(word, UNKNOWN) for word in body][: vocabulary["body_length"]]
                after = [title_numbers.get(word, UNKNOWN) for word in title][: vocabulary["title_length"] - 1]
                # Bodies are padded in front, so that the encoder reads their words last.
                before = [PADDING] * (vocabulary["body_length"] - len(before)) + before
                after = [*after, END] + [PADDING] * (vocabulary["title_length"] - 1 - len(after))
                print(*before, *after, file=file)
    made = folder / "vocabulary.json"
    partial(made).write_text(json.dumps(vocabulary))
    partial(made).rename(made)
    sizes = f"{len(vocabulary['body'])} words of bodies, {len(vocabulary['title'])} of titles"
    print(f"built the vocabulary: {sizes}; {len(train)} issues to learn from, {len(held_out)} held out", flush=True)


def words(text: str) -> list[str]:
    return re.findall(r"\w+", text.lower())


def most_common(texts: Iterable[list[str]], count: int) -> list[str]:
    """Return the most common words; the index of each is its number."""
    return ["", "?", "", "", *(word for word, _ in Counter(itertools.chain.from_iterable(texts)).most_common(count))]


# Generated issues

THINGS = ["login page", "search box", "upload form", "export button", "settings menu", "dark mode", "user list"]
FAULTS = ["crashes", "hangs", "is slow", "shows nothing", "loses data", "flickers"]
TIMES = ["on windows", "after update", "with large files", "without network", "in firefox"]


def make_up(issues: Path, count: int) -> None:
    """Write issues: each body names a thing, a fault and a time in any order; the title combines the three."""
    chance = random.Random(1)
    with partial(issues).open("w", newline="", encoding="utf-8") as file:
        table = csv.writer(file)
        table.writerow(["issue_url", "issue_title", "body"])
        for index in range(count):
            thing, fault, when = (chance.choice(several) for several in (THINGS, FAULTS, TIMES))
            said = [f"I use the {thing}.", f"It {fault}!", f"This happens {when}.", f"Version {chance.randrange(100)}."]
            chance.shuffle(said)
            table.writerow([f"https://example.com/issues/{index}", f"{thing} {fault} {when}", " ".join(said)])
    partial(issues).rename(issues)
    print(f"made up {count} issues", flush=True)


if __name__ == "__main__":
    main()
