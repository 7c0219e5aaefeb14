"""Templates of Helm are recognized before they are read as specs."""

from __future__ import annotations

import pytest

from drumline.errors import SpecError
from drumline.load.load import check_spec
from drumline.spec.dialect import draft_of
from drumline.spec.templates import helm_line

CHART = """\
apiVersion: kubeflow.org/v1
kind: TFJob
metadata:
  name: {name}
spec: {{}}
"""


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("{{ .Values.name }}", 4),
        ('"{{ .Release.Name }}-train"', 4),
        ("{{- .Chart.Name }}", 4),
        ('{{ include "train.name" . }}', 4),
        ("train\n{{- if .Values.tpu }}\n  labels: {}\n{{- end }}", 5),
        ("train\n{{/* a comment */}}", 5),
    ],
)
def test_a_template_of_helm_is_refused_with_the_command_that_renders_it(name: str, line: int) -> None:
    text = CHART.format(name=name).encode()
    for read in (lambda: check_spec(text, "tfjob.yaml"), lambda: draft_of((text, "tfjob.yaml"))):
        with pytest.raises(SpecError) as caught:
            read()
        assert str(caught.value) == (
            f"tfjob.yaml:{line}: is a template of Helm: render it first, `helm template CHART > rendered.yaml`, and"
            " give that file"
        )


@pytest.mark.parametrize(
    "text",
    [
        "project: digits\nrun: echo {{ .Values.name }}\n",
        "project: digits\nparameters: {end: 1}\nrun: train {{ end }} {{- end }}\n",
        "{% set end = 1 %}\na: {{ end }} {{- end }}\n",
        CHART.format(name="train"),
        CHART.format(name='"{{ name }}"'),
    ],
)
def test_any_other_text_is_not_taken_for_a_template_of_helm(text: str) -> None:
    assert helm_line(text.encode()) is None
