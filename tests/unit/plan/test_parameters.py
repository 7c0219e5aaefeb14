"""A value reaches a program unchanged: filled commands are executed by real shells, and their output is compared."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from drumline.plan.parameters import (
    fill,
    fill_shell,
    lookalikes,
    placeholders,
    shell_placeholders,
    unclosed_placeholders,
    unfinished,
)
from scaffold.effort import examples

# Each shell once, even if it has several names on this machine.
SHELLS = list({str(Path(path).resolve()): path for name in ("bash", "dash", "sh") if (path := shutil.which(name))})

NASTY = [
    "", " ", "  two  blanks ", "\t", "\n", "two\nlines\n\n", "'", '"', "'\"'\"'", "it's", 'say "hi"', "$HOME",
    "${HOME}", "$(echo no)", "`echo no`", "$((1+1))", "\\", "\\\\", "a\\", "\\n", "!", "!!", "*", "?", "[a-z]*", "~",
    "~/x", "~root", "-", "--", "-n", "-e", "--help", "#", "# no", "a#b", ";", "; echo no", "&& echo no", "| cat",
    "& echo no", "(", ")", "{", "}", "{a,b}", "{{ p }}", "}}", "<", ">", "2>&1", "<<E", "if", "then", "done", "esac",
    "in", "a=b", "=", "2", "-5", "0.001", "1e-6", "007", "%s", "%d%%", "\\c", "ünïcödé", "日本語", "🥁", "\u2028",
    "\u00a0", "\x01", "\x7f", "\x1b[0m", "\r", "x" * 300, "a\tb", "\\'", '\\"', "\\$", "'$(echo no)'", '"$(echo no)"',
    "$'a'", "%", "^",
]  # fmt: skip

VALUES = st.one_of(
    st.sampled_from(NASTY),
    st.text(st.sampled_from("ab2 \n\t'\"\\$`(){}[]<>|&;#*?~!=-%é🥁"), max_size=12),
    st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=12),
)

# For each call of `show`, the arguments it must get. X is "x" where these run, and UNSET is not set.
PLACES: dict[str, Callable[[str], list[list[str]]]] = {
    "show {{ p }}": lambda v: [[v]],
    "show {{p}} {{  p}}\t{{\np\n}}": lambda v: [[v, v, v]],
    "show a{{ p }}b": lambda v: [[f"a{v}b"]],
    "show --x={{ p }} -y{{ p }}": lambda v: [[f"--x={v}", f"-y{v}"]],
    "show {{ p }}{{ p }}-{{ p }}": lambda v: [[f"{v}{v}-{v}"]],
    'show "{{ p }}" "a {{ p }} b" c': lambda v: [[v, f"a {v} b", "c"]],
    r'show "\"{{ p }}\"" "\\{{ p }}"': lambda v: [[f'"{v}"', f"\\{v}"]],
    "show '{{ p }}' 'a \"{{ p }}\" $X'": lambda v: [[v, f'a "{v}" $X']],
    "show '$X'{{ p }}\"$X\"": lambda v: [[f"$X{v}x"]],
    "show $X{{ p }} \"$X{{ p }}\" '$X{{ p }}'": lambda v: [[f"x{v}", f"x{v}", f"$X{v}"]],
    'show ${X}{{ p }} "${X}{{ p }}" "${UNSET-}{{ p }}"': lambda v: [[f"x{v}", f"x{v}", v]],
    r"""show \${{ p }} \\{{ p }} "\${{ p }}" '${{ p }}'""": lambda v: [[f"${v}", f"\\{v}", f"${v}", f"${v}"]],
    "show ~{{ p }} ~/{{ p }}": lambda v: [[f"~{v}", f"/home/{v}"]],
    "show {{ p }}>&1": lambda v: [[v]],
    "show 1{{ p }}0>&1": lambda v: [[f"1{v}0"]],
    'show "$(printf %s {{ p }}.)"': lambda v: [[f"{v}."]],
    """show "$(printf %s "{{ p }}.")" "$(printf %s '{{ p }}.')" """: lambda v: [[f"{v}.", f"{v}."]],
    'show "a$(printf %s "b$(printf %s "{{ p }}.")")"': lambda v: [[f"ab{v}."]],
    """show ${UNSET:-{{ p }}} ${UNSET:-"{{ p }}"} ${UNSET:-'{{ p }}'}""": lambda v: [[v, v, v]],
    "show ${UNSET-a '{{ p }}' b}": lambda v: [["a", v, "b"]],
    'v={{ p }}; w=a"{{ p }}"; show "$v" "$w"': lambda v: [[v, f"a{v}"]],
    'for v in {{ p }} "{{ p }}"; do show "$v" {{ p }}; done': lambda v: [[v, v], [v, v]],
    "if [ {{ p }} = '{{ p }}' ]; then show {{ p }}; else show no; fi": lambda v: [[v]],
    "case {{ p }} in {{ p }}) show {{ p }} yes ;; *) show no ;; esac": lambda v: [[v, "yes"]],
    'f() { show "$1" {{ p }}; }; f "{{ p }}"': lambda v: [[v, v]],
    "(show {{ p }}) | cat": lambda v: [[v]],
    "{ show {{ p }}; } 2>&1 && : {{ p }} || show no": lambda v: [[v]],
    "# don't {{ p }} \" ` $(\nshow {{ p }}": lambda v: [[v]],
    "show {{ p }} # it's {{ p }}\nshow {{ p }}": lambda v: [[v], [v]],
    "(show {{ p }})# it's\nshow {{ p }};# it's\nshow {{ p }}": lambda v: [[v], [v], [v]],
    "show $(echo a)# '{{ p }}'": lambda v: [["a#", v]],
    "show a\\ #{{ p }} a\\\n#{{ p }} \\\n{{ p }}": lambda v: [[f"a #{v}", f"a#{v}", v]],
    "show '#' {{ p }} a#{{ p }} ${X#y} {{ p }}": lambda v: [["#", v, f"a#{v}", "x", v]],
    "show ${UNSET:-a #b} {{ p }}": lambda v: [["a", "#b", v]],
    "show `printf '%s' a` {{ p }}": lambda v: [["a", v]],
    "show `echo a # '` {{ p }}": lambda v: [["a", v]],
    'show $((1 << 2)) "$(( (2 + 1) * 2 ))" {{ p }}\nshow {{ p }}': lambda v: [["4", "6", v], [v]],
    'show "$(cat <<E\nb\nE\n)"': lambda _: [["b"]],
    "cat <<! >/dev/null; show {{ p }}\ndon't\n!": lambda v: [[v]],
    'show "${UNSET:-a(b}" "${X%(}" {{ p }}': lambda v: [["a(b", "x", v]],
    "show $'a' {{ p }}": lambda v: [["$a", v]],
    "show $(for i in 1; do printf %s {{ i }}; done) {{ p }}": lambda v: [["7", v]],
}


def run_shell(shell: str, commands: Sequence[str]) -> list[str]:
    """Run commands in one shell; return the number and the arguments of each call of `show`."""
    script = "\n".join(['show() { printf \'%s\\0\' "$#" "$@"; }', *(f"(\n{command}\n)" for command in commands)])
    environment = {"PATH": "/usr/bin:/bin", "X": "x", "HOME": "/home", "LC_ALL": "C.UTF-8"}
    with TemporaryDirectory() as folder:  # should a value ever be read as a redirection, its file ends there
        done = subprocess.run(
            [shell], input=script.encode(), capture_output=True, env=environment, cwd=folder, check=False
        )
    assert (done.returncode, done.stderr.decode(errors="replace")) == (0, ""), script
    return done.stdout.decode().split("\0")[:-1]


def is_plain(shell: str, place: str) -> bool:
    """Return whether this shell does not treat `$'…'` as a special kind of quotes."""
    return "$'" not in place or shell.endswith("dash")


def shown(calls: Sequence[Sequence[str]]) -> list[str]:
    return [word for call in calls for word in (str(len(call)), *call)]


@pytest.mark.parametrize("shell", SHELLS)
@settings(max_examples=examples(25), deadline=None)
@given(values=st.lists(VALUES, min_size=1, max_size=8))
def test_any_value_arrives_unchanged_in_any_place(shell: str, values: list[str]) -> None:
    pairs = [(place, value) for place in PLACES for value in values if is_plain(shell, place)]
    output = run_shell(shell, [fill_shell(place, {"p": value, "i": "7"}) for place, value in pairs])
    assert output == shown([call for place, value in pairs for call in PLACES[place](value)])


@pytest.mark.parametrize("shell", SHELLS)
def test_every_nasty_value_arrives_unchanged(shell: str) -> None:
    pairs = [(place, value) for place in PLACES for value in NASTY if is_plain(shell, place)]
    output = run_shell(shell, [fill_shell(place, {"p": value, "i": "7"}) for place, value in pairs])
    assert output == shown([call for place, value in pairs for call in PLACES[place](value)])


# Random words, each with the text that the shell must make of it; `@` stands for the value.
TEXT = st.text(st.sampled_from("abc019_./:,=-"), min_size=1, max_size=4).map(lambda text: (text, text))
HOLE = st.just(("{{ p }}", "@"))
ESCAPED = st.sampled_from([(r"\"", '"'), (r"\\", "\\"), (r"\$", "$"), (r"\`", "`")])
IN_SINGLE = st.text(st.sampled_from('ab "$`\\#()\n'), min_size=1, max_size=4).map(lambda text: (text, text))
IN_DOUBLE = st.text(st.sampled_from("ab '#()~*\n"), min_size=1, max_size=4).map(lambda text: (text, text))
VARIABLE = st.just(("${X}", "x"))
Word = tuple[str, str]


def joined(
    parts: st.SearchStrategy[Word], before: str, after: str, *, ends: Callable[[str], str] = str
) -> st.SearchStrategy[Word]:
    return st.lists(parts, max_size=4).map(
        lambda words: (before + "".join(word[0] for word in words) + after, ends("".join(word[1] for word in words)))
    )


SINGLE = joined(st.one_of(IN_SINGLE, HOLE), "'", "'")
WORDS: st.SearchStrategy[Word] = st.recursive(
    st.one_of(TEXT, HOLE, VARIABLE, SINGLE, ESCAPED),
    lambda inner: st.one_of(
        joined(st.one_of(IN_DOUBLE, ESCAPED, HOLE, VARIABLE), '"', '"'),
        joined(inner, '"$(printf %s ', '.)"', ends=lambda text: f"{text}."),
        joined(inner, "\"$(# it's\nprintf %s ", '.)"', ends=lambda text: f"{text}."),
        joined(inner, '"$( (printf %s ', '.))"', ends=lambda text: f"{text}."),
        joined(st.one_of(SINGLE, HOLE), "${UNSET:-''", "}"),
        joined(inner, "", ""),
    ),
    max_leaves=6,
)


@pytest.mark.parametrize("shell", SHELLS)
@settings(max_examples=examples(40), deadline=None)
@given(words=st.lists(st.tuples(WORDS, VALUES), min_size=1, max_size=20))
def test_any_value_arrives_unchanged_however_quotes_are_nested(shell: str, words: list[tuple[Word, str]]) -> None:
    output = run_shell(shell, [fill_shell(f"show ''{source}", {"p": value}) for (source, _), value in words])
    assert output == shown([[result.replace("@", value)] for (_, result), value in words])


@given(text=st.text(), value=VALUES)
def test_plain_text_gets_the_value_without_quotes(text: str, value: str) -> None:
    braceless = text.replace("{", "").replace("}", "")
    assert fill(f"{braceless}{{{{ p }}}}{{{{p}}}}{braceless}", {"p": value}) == f"{braceless}{value}{value}{braceless}"


@given(command=st.text(st.sampled_from("ab \n'\"\\$`(){}<>#;p")))
def test_a_command_without_placeholders_is_not_changed(command: str) -> None:
    assume("{{" not in command)
    assert list(shell_placeholders(command)) == []
    assert fill_shell(command, {}) == command


@pytest.mark.parametrize(
    ("command", "trouble"),
    [
        ("echo `echo {{ p }}`", "back-quotes; use $(…)"),
        ('echo "`echo {{ p }}`"', "back-quotes; use $(…)"),
        ("cat <<E\n{{ p }}\nE", "a here-document"),
        ("cat <<-'E'\n{{ p }}\nE", "a here-document"),
        ("cat <<!\n{{ p }}\n!", "a here-document"),
        ("cat <<E\nE\necho {{ p }}", "a here-document"),
        ("cat <<${x#\n{{ p }}\n${x#", "a here-document"),
        ("cat <<E # it's\n{{ p }}\nE", "a here-document"),
        ("echo $(cat <<E\n{{ p }}\nE\n)", "a here-document"),
        ("echo $((1 + {{ p }}))", "$((…))"),
        ("echo $(( (1 + {{ p }}) * 2 ))", "$((…))"),
        ("echo $'{{ p }}'", "$'…'"),
        ('echo "${x:-{{ p }}}"', "a quoted ${…}"),
        ('echo "${x:-${y:-{{ p }}}}"', "a quoted ${…}"),
        ('echo "${x:-$(echo {{ p }})}"', "a quoted ${…}"),
        ("echo $\\\n{{ p }}", "a command that is too complex to analyze"),
        ("cat <\\\n<E\n{{ p }}\nE", "a command that is too complex to analyze"),
        ("echo $${ <<E\n{{ p }}\nE", "a here-document"),
        ("echo ${{ p }}", "${{…}}; leave out the `$`"),
        ('echo "${{ p }}"', "${{…}}; leave out the `$`"),
        ('echo "${x:-don\'t}" {{ p }}', "a command that is too complex to analyze"),
        ('echo "${x:-"}"}" {{ p }}', "a command that is too complex to analyze"),
        ("echo $'don\\'t' {{ p }}", "a command that is too complex to analyze"),
        ("echo \"$(case $x in a) echo '{{ p }}' ;; esac)\"", "a command that is too complex to analyze"),
        ("echo $((echo a); echo {{ p }})", "a command that is too complex to analyze"),
        ("echo $((echo ')'); true); echo '{{ p }}'", "a command that is too complex to analyze"),
        ("(" * 51 + "{{ p }}", "a command that is too complex to analyze"),
    ],
)
def test_a_value_is_refused_where_no_quoting_is_safe(command: str, trouble: str) -> None:
    (placeholder,) = shell_placeholders(command)
    assert (placeholder.name, placeholder.problem) == ("p", trouble)


@pytest.mark.timeout(20)
def test_very_deep_nesting_is_refused_in_linear_time() -> None:
    nested = list(shell_placeholders("$(" * 50_000 + "{{ p }}" * 10_000))
    assert {placeholder.problem for placeholder in nested} == {"a command that is too complex to analyze"}


@pytest.mark.parametrize("place", PLACES)
def test_a_value_is_accepted_where_it_can_be_quoted(place: str) -> None:
    assert [placeholder.problem for placeholder in shell_placeholders(place) if placeholder.problem] == []


@pytest.mark.parametrize(
    ("command", "context"),
    [
        ("echo ${x:-\\a'{{ p }}'}", "'"),
        ('echo ${x:-\\a"{{ p }}"}', '"'),
        ('echo "\\a${x}{{ p }}"', '"'),
        ("cat <<'E' {{ p }}\nE", ""),
        ("echo $(()) {{ p }}", ""),
        ("echo `\\a` {{ p }}", ""),
        ("echo $$'{{ p }}'", "'"),
        ("echo $'a ' {{ p }}", ""),
        ("echo $'\\n' {{ p }}", ""),
        ('echo "${x:-\\}}" {{ p }}', ""),
        ("echo ${{{ p }}}", "${"),
        ("(" * 50 + "{{ p }}", "("),
    ],
)
def test_the_quotes_around_a_value_are_recognized_after_escapes_and_closed_constructs(
    command: str, context: str
) -> None:
    (placeholder,) = shell_placeholders(command)
    assert (placeholder.context, placeholder.problem) == (context, None)


@pytest.mark.parametrize("command", ["cat <<<'x' {{ p }}", "cat <<<x\necho {{ p }}", 'cat <<< "x" {{ p }}'])
def test_after_a_here_string_there_is_no_document(command: str) -> None:
    (placeholder,) = shell_placeholders(command)
    assert (placeholder.context, placeholder.problem) == ("", None)


def test_numbers_are_not_quoted_and_words_are_quoted() -> None:
    command = 'cd src && python train.py --lr {{ lr }} --optimizer {{ opt }} "n={{ n }}"'
    filled = fill_shell(command, {"lr": "0.001", "opt": "adam", "n": "2"})
    assert filled == "cd src && python train.py --lr 0.001 --optimizer 'adam' \"n=2\""


def test_placeholders_in_comments_are_ignored() -> None:
    assert [placeholder.name for placeholder in shell_placeholders("echo {{ a }} # {{ b }}\necho {{ c }}")] == [
        "a",
        "c",
    ]


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("{{ lr }}", ["lr"]),
        ("{{lr}}{{ lr-decay }}", ["lr", "lr-decay"]),
        ("{{ a_b }} {{ a1 }}", ["a_b", "a1"]),
        ("{{ a. }} {{ 1a }} {{ -a }} {{ a- }} {{}} {{ a b }} { { a } } {a}", []),
        ("{{{ a }}}", ["a"]),
    ],
)
def test_placeholders_have_names_of_parameters(text: str, names: list[str]) -> None:
    assert list(placeholders(text)) == names


def test_texts_that_resemble_a_placeholder_are_found() -> None:
    assert list(lookalikes("{{ a }} {{ a.b }} {{}} {{ a | lower }}")) == ["{{ a.b }}", "{{}}", "{{ a | lower }}"]
    assert list(lookalikes("{% if a %}x{% endif %} {%- for b")) == ["{% if a %}", "{% endif %}", "{%- for b"]
    assert not list(lookalikes("date +{%Y}"))


@pytest.mark.parametrize(
    ("text", "unclosed"),
    [
        ("{{ lr", ["{{ lr"]),
        ("--a {{ a --b {{ b }} --c {{c", ["{{ a", "{{c"]),
        ("{{ a } ${HOME}", ["{{ a"]),
        ("{{ a --dir ${HOME} $x", ["{{ a"]),
        ("{{ a }} {{ a b }} {{{ a }}} {{", []),
        ("echo {{a,b},c} {{a..c},d}", []),
        ("awk '{{print $1} {print $2}}'", []),
        ('{"a": {"b": {}}}', []),
    ],
)
def test_a_placeholder_without_an_end_is_found(text: str, unclosed: list[str]) -> None:
    assert list(unclosed_placeholders(text)) == unclosed


@pytest.mark.parametrize("text", ["{{lr", "{{ lr", "{{  lr"])
def test_the_message_for_an_unclosed_placeholder_has_the_correct_form(text: str) -> None:
    assert list(unfinished(f"echo {text}")) == [f"`{text}` is never closed: write `{{{{ lr }}}}`"]


PIECES = [
    "'", '"', "`", "(", ")", "$(", "${x}", "${", "}", "$((", "))", "\\", "#", " ", "\n", ";", "a", "1", "<<E\n", "$'",
    "case a in", "esac", "{{ p }}", "&&", "|", '"${x',
]  # fmt: skip


@given(st.lists(st.sampled_from(PIECES), max_size=12).map("".join))
@settings(max_examples=examples(300), deadline=None)
def test_a_command_that_a_shell_can_read_is_never_called_unfinished(command: str) -> None:
    if found := list(unfinished(command)):
        filled = command.replace("{{ p }}", "p")
        for shell in SHELLS:
            read = subprocess.run([shell, "-n", "-c", filled], capture_output=True, text=True, check=False)
            assert read.returncode or read.stderr, found


@pytest.mark.parametrize("opened", ["'", '"', "`", "(", "$(", "$((", "${", '"${', "${{ "])
def test_a_command_that_is_called_unfinished_is_refused_by_every_shell(opened: str) -> None:
    (message,) = unfinished(f"echo a; echo {opened}x")
    assert "is never closed" in message
    for shell in SHELLS:
        assert subprocess.run(
            [shell, "-n", "-c", f"echo a; echo {opened}x"], capture_output=True, check=False
        ).returncode


@pytest.mark.parametrize("operator", ["&&", "||", "|"])
def test_an_operator_that_nothing_follows_is_found_and_is_refused_by_every_shell(operator: str) -> None:
    (message,) = unfinished(f"echo a {operator} \n")
    assert message == f"nothing follows the `{operator}` at its end, so a shell cannot read the command"
    for shell in SHELLS:
        read = subprocess.run([shell, "-n", "-c", f"echo a {operator}"], capture_output=True, check=False)
        assert read.returncode
    assert not list(unfinished(f"echo \\{operator[0]}"))
    assert not list(unfinished(f"echo '{operator}'"))


def test_an_operator_at_the_end_of_a_comment_or_before_a_document_is_not_reported() -> None:
    assert not list(unfinished("make # a &&"))
    assert not list(unfinished("cat <<E &&"))


def test_an_unclosed_quote_is_found_even_if_a_brace_follows_it() -> None:
    (message,) = unfinished('echo "a }')
    assert message.startswith('`"` is never closed')


def test_an_expression_of_another_system_is_refused_where_a_shell_would_read_it() -> None:
    (message,) = unfinished('python t.py "${{ inputs.lr }}"')
    assert message.startswith("`${{ inputs.lr }}` is no placeholder, and no shell can read it")
    assert not list(unfinished("python t.py '${{ inputs.lr }}' # ${{ inputs.lr }}"))


def test_the_message_for_a_command_of_several_lines_names_the_line() -> None:
    (message,) = unfinished("set -e\npython a.py\npython b.py 'x\necho c\n")
    assert message.startswith("`'` in line 3 of the command is never closed")
    (message,) = unfinished("\npython a.py\npython b.py 'x")
    assert message.startswith("`'` in line 3 of the command is never closed")


@pytest.mark.timeout(20)
def test_unfinished_quotes_are_found_in_linear_time() -> None:
    assert list(unfinished("{{ a " * 50_000 + "'"))
