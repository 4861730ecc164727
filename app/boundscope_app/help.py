"""F1: what is where, all shortcuts from the action table, and how to read what is shown."""

from __future__ import annotations

from html import escape

from PySide6.QtGui import QKeySequence
from PySide6.QtWidgets import QDialog, QDialogButtonBox, QTextBrowser, QVBoxLayout, QWidget

from boundscope_app.actions import ACTIONS

PLACES = """
<h2>Where things are</h2>
<p><b>Left</b>, the library: examples, networks, properties and inputs. <b>Right</b>, the run form: what you are
about to run, read back in words before it runs. <b>Below</b>, the jobs: every run, also those of earlier days.
<b>Centre</b>, the views of the run that is selected. Docks can be moved and closed;
View &gt; Reset layout puts them back.</p>
<h2>From file to verdict</h2>
<ol>
<li>Drop an ONNX network and a VNN-LIB property anywhere in the window, or choose them with Ctrl+O.
For an ε-ball, drop a .npy or .png instead of the property.</li>
<li>Read what was understood: the input box and the clauses that would violate the property.</li>
<li>Press Run. Watch the bound gap close; the verdict comes with its arithmetic and its margin.</li>
<li>Export the plots and tables with Ctrl+E, or copy the command line that does the same.</li>
</ol>
<h2>When bounds do not decide</h2>
<p>The method <b>Complete</b> splits what bounds leave open into domains, and bounds these in turn, until the property
is proven, an input violates it, or the time is up. Below the margins, the Bound gap view counts the domains bounded so
far and those that are open: a search ends well when the open ones fall to none. While they grow as fast as the bounded
ones, more time will rarely do; a smaller box, or splitting the other kind (<b>Branching</b>), may.</p>
<h2>A whole benchmark</h2>
<p>Drop an instances.csv, or choose <b>Benchmark</b> in the run form, and press Run: all that it names is verified as
one job. The Instances view has a row each, as they end; Enter shows the reason and the counterexample of one.</p>
<h2>How much rounding costs</h2>
<p>Choose <b>Variability</b> in the run form, a network, and points: drawn from a property's box, or from a .npy, a
.npz, or a folder of .png images that you drop. The network runs several times under random rounding; the Variability
view shows how many bits of every layer stay the same. Yellow layers keep nearly all of their bits, dark ones hardly
any; hatched ones are exact in every sample, or NaN.</p>
<p>Ctrl+P pauses the selected run and lets it go on: it keeps what it has, its time limit and its duration stand still.
Esc asks it to stop. Ctrl+G goes on, in a new run, with a complete search that was stopped, killed or out of time.</p>
<p>Closing the window leaves the runs going: they belong to the daemon, and are here at the next start.</p>
<h2>One layer in all views</h2>
<p>The Graph view draws the network; its nodes are coloured by proven width, unstable neurons, significant digits,
proven rounding or observed deviation, and hatched where the run has no value of it. Down and Up follow the edges, Left
and Right go to the neighbour, plus and minus zoom, 0 shows all, Ctrl+F searches. The layer that you pick in the graph,
in the Layers table or in the heatmap is marked in the other two. Each run keeps its own.</p>
<h2>Words</h2>
<p><b>Verified</b>: no input of the box violates the property. <b>Violated</b>: a counterexample was found and
replayed. <b>Unknown</b>: the bounds were too loose to decide; try a tighter method, in the end Complete.
<b>Margin</b>: the smallest proven distance from violation. <b>Gap</b>: upper minus lower bound on the margin.
<b>Domain</b>: a part of the input box, or of it the inputs that put certain neurons on certain sides of their kinks.
<b>Rank</b>: one process of a run. <b>Significant bits</b>: −log2 of a value's noise, divided by the value.
<b>Flip</b>: a sample that decides for
another class.</p>
"""


def shortcut_table() -> str:
    """The action table as HTML."""
    rows = "".join(
        f"<tr><td><b>{escape(QKeySequence(row.shortcut).toString(QKeySequence.SequenceFormat.NativeText))}</b></td>"
        f"<td>{escape(row.text.rstrip('…'))}</td><td>{escape(row.tip)}</td></tr>"
        for row in ACTIONS
        if row.shortcut
    )
    return f"<h2>Shortcuts</h2><table cellpadding='4' width='100%'>{rows}</table>"


class HelpDialog(QDialog):
    """Stays open beside the work; Esc closes it."""

    def __init__(self, parent: QWidget) -> None:
        super().__init__(parent)
        self.setWindowTitle("Boundscope help")
        self.setObjectName("help")
        self.page = QTextBrowser(self)
        self.page.setAccessibleName("Help")
        self.page.setOpenExternalLinks(True)
        self.page.setHtml(PLACES + shortcut_table())
        buttons = QDialogButtonBox(QDialogButtonBox.StandardButton.Close, self)
        buttons.rejected.connect(self.close)
        column = QVBoxLayout(self)
        column.addWidget(self.page)
        column.addWidget(buttons)
        self.resize(720, 640)
