"""Make the dashboard's ConfigMap and the PrometheusRule of deploy/kubernetes from dashboards/.

    python scripts/kubernetes_files.py [--check]

Grafana's sidecar loads ConfigMaps labelled ``grafana_dashboard: "1"``, the Prometheus operator the
PrometheusRules that its selector matches; kube-prometheus-stack selects ``release: <its release>``.
"""

from __future__ import annotations

import sys
from pathlib import Path
from textwrap import indent

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "deploy" / "kubernetes"
MADE_BY = "# Made by scripts/kubernetes_files.py from dashboards/; change those.\n"


def dashboard() -> str:
    """Return the ConfigMap."""
    content = (ROOT / "dashboards" / "adaptive_spec.json").read_text(encoding="utf-8")
    head = (
        "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: adaptive-spec-dashboard\n"
        '  labels: {grafana_dashboard: "1"}\ndata:\n  adaptive_spec.json: |\n'
    )
    return MADE_BY + head + indent(content, "    ")


def rules() -> str:
    """Return the PrometheusRule."""
    lines = (ROOT / "dashboards" / "alerts.yml").read_text(encoding="utf-8").splitlines()
    content = "\n".join(line for line in lines if not line.startswith("#")) + "\n"
    head = (
        "apiVersion: monitoring.coreos.com/v1\nkind: PrometheusRule\nmetadata:\n"
        "  name: adaptive-spec\n  labels: {release: kube-prometheus-stack}\nspec:\n"
    )
    return MADE_BY + head + indent(content, "  ")


FILES = {"dashboard.yaml": dashboard, "prometheus-rule.yaml": rules}


def main() -> int:
    """Write the files, or with ``--check`` return 1 if one is not up to date."""
    stale = 0
    for name, make in FILES.items():
        path, content = FOLDER / name, make()
        if "--check" not in sys.argv:
            path.parent.mkdir(exist_ok=True)
            path.write_text(content, encoding="utf-8")
        elif not path.exists() or path.read_text(encoding="utf-8") != content:
            print(f"{path.relative_to(ROOT)}: run python scripts/kubernetes_files.py")
            stale = 1
    return stale


if __name__ == "__main__":
    sys.exit(main())
