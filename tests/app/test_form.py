"""The form says what is missing, offers only what this version can do, and reads back before anything runs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
from PySide6.QtCore import QPoint, QPointF, Qt
from PySide6.QtGui import QGuiApplication, QWheelEvent
from PySide6.QtWidgets import QApplication, QComboBox
from pytestqt.qtbot import QtBot

from app.window_support import EXAMPLES, example_draft
from boundscope import capabilities
from boundscope.protocol import Arithmetic, Branching, Engine, MachineCosts, Method, Norm, Precision, Sharding
from boundscope_app.docks.ball import NORMS
from boundscope_app.docks.choices import ARITHMETICS, ENGINES, HINTS, METHODS, NOT_YET, PRECISIONS, SHARDINGS
from boundscope_app.draft import Ball, Draft, Options, draft_of, named_only
from boundscope_app.estimate import Question, answer, budget_bytes
from boundscope_app.link_types import Inspection
from boundscope_app.noise_draft import NoiseDraft, NoiseOptions
from boundscope_app.window import MainWindow


def usable(combo: QComboBox) -> set[str]:
    model = combo.model()
    flags = (model.flags(model.index(row, 0)) for row in range(combo.count()))
    return {combo.itemData(row) for row, flag in enumerate(flags) if flag & Qt.ItemFlag.ItemIsEnabled}


def test_only_what_this_version_can_do_is_enabled(lone_window: MainWindow) -> None:
    choices = lone_window.form.choices
    for combo, available in (
        (choices.method, capabilities.METHODS),
        (choices.engine, capabilities.ENGINES),
        (choices.sharding, capabilities.SHARDINGS),
        (choices.arithmetic, capabilities.ARITHMETICS),
    ):
        assert usable(combo) == set(available)
        for row in range(combo.count()):
            said = NOT_YET in combo.itemText(row)
            assert said == (combo.itemData(row) not in available)


def test_every_value_of_the_protocol_has_its_words() -> None:
    for values, words in (
        (Method, METHODS),
        (Engine, ENGINES),
        (Sharding, SHARDINGS),
        (Arithmetic, ARITHMETICS),
        (Precision, PRECISIONS),
        (Norm, NORMS),
    ):
        assert set(words) == set(values)


def test_every_option_is_explained(lone_window: MainWindow) -> None:
    for name, field in lone_window.form.choices.fields().items():
        assert field.accessibleName() == name
        assert field.accessibleDescription() == HINTS[name]
        assert field.toolTip()
        assert field.statusTip()


def test_what_is_missing_is_said_and_run_waits(lone_window: MainWindow) -> None:
    form = lone_window.form
    assert "network" in form.problem
    assert not form.run_button.isEnabled()
    form.set_network(EXAMPLES / "networks" / "digits_mlp.onnx")
    assert "property" in form.problem
    form.set_draft(example_draft())
    assert form.problem == ""
    assert form.run_button.isEnabled()


def test_path_that_is_wrong_is_explained_beside_the_field(lone_window: MainWindow, qtbot: QtBot) -> None:
    field = lone_window.form.network
    field.line.setFocus()
    qtbot.keyClicks(field.line, "/nowhere/net.onnx")
    qtbot.keyClick(field.line, Qt.Key.Key_Return)
    assert "is not there" in field.problem
    assert "is not there" in lone_window.form.problem
    assert field.source is None


def test_wrong_middle_of_a_ball_is_what_the_form_complains_of(
    lone_window: MainWindow, tmp_path: Path
) -> None:
    lone_window.form.set_network(EXAMPLES / "networks" / "digits_mlp.onnx")
    lone_window.form.set_center(tmp_path / "gone.npy")
    assert "gone.npy is not there" in lone_window.form.problem
    assert "gone.npy is not there" in lone_window.form._why.text()


def test_scrolling_past_a_field_does_not_change_it(lone_window: MainWindow) -> None:
    lone_window.form.network.line.setFocus()
    for field in (lone_window.form.choices.timeout, lone_window.form.choices.method):
        at = QPointF(field.rect().center())
        keys, phase = Qt.KeyboardModifier.NoModifier, Qt.ScrollPhase.NoScrollPhase
        event = QWheelEvent(
            at, field.mapToGlobal(at), QPoint(), QPoint(0, 120), Qt.MouseButton.NoButton, keys, phase, False
        )
        QApplication.sendEvent(field, event)
    assert lone_window.form.choices.options == Options()


def test_draft_survives_the_form(lone_window: MainWindow, tmp_path: Path) -> None:
    center = tmp_path / "x.npy"
    np.save(center, np.zeros(4))
    network = EXAMPLES / "networks" / "digits_mlp.onnx"
    options = Options(
        method=Method.IBP, sharding=Sharding.ROWS, ranks=3, timeout_s=12.5, seed=9, chunk_rows=32
    )
    for draft in (
        Draft(network, Ball(center, "0.02", 3, "0", "1", "0.5", "0.25", Norm.L1), options),
        example_draft("digits-conv"),
    ):
        lone_window.form.set_draft(draft)
        assert lone_window.form.draft == draft


def test_one_rank_without_sharding(lone_window: MainWindow) -> None:
    choices = lone_window.form.choices
    choices.set_options(Options(sharding=Sharding.ROWS, ranks=4))
    assert choices.ranks.isEnabled()
    choices.sharding.setCurrentIndex(choices.sharding.findData(Sharding.NONE))
    assert not choices.ranks.isEnabled()
    assert choices.options.ranks == 1


def test_branching_goes_with_the_method_that_splits(lone_window: MainWindow) -> None:
    choices = lone_window.form.choices
    choices.set_options(Options(method=Method.COMPLETE, branching=Branching.INPUT))
    assert choices.branching.isEnabled()
    assert choices.options.branching is Branching.INPUT
    choices.method.setCurrentIndex(choices.method.findData(Method.CROWN))
    assert not choices.branching.isEnabled()
    assert "Complete" in choices.branching.toolTip()
    assert choices.options.branching is Branching.AUTO
    draft = example_draft()
    lone_window.form.set_draft(
        replace(draft, options=Options(method=Method.COMPLETE, branching=Branching.ACTIVATION))
    )
    assert "--method complete" in lone_window.form.draft.command()
    assert "--branching activation" in lone_window.form.draft.command()


def test_copy_as_command_line(lone_window: MainWindow) -> None:
    lone_window.form.set_draft(example_draft())
    lone_window.form.copy_button.click()
    copied = QGuiApplication.clipboard().text()
    assert copied == example_draft().command()
    assert copied.startswith("boundscope verify ")


def test_synchronous_rounds_are_asked_for_where_domains_are_split(lone_window: MainWindow) -> None:
    """In the form, in the command line, and back from the record of the job."""
    form, draft = lone_window.form, example_draft()
    box = form.choices.synchronous
    assert not box.isVisible(), "CROWN splits nothing"
    options = Options(method=Method.COMPLETE, sharding=Sharding.ROWS, ranks=2)
    form.set_draft(replace(draft, options=options))
    assert box.isVisible()
    assert "--force-synchronous" not in form.draft.command()
    box.click()
    assert form.draft.options.force_synchronous
    assert (
        form.draft.command().endswith("--force-synchronous") or "--force-synchronous " in form.draft.command()
    )
    job = form.draft.job(named_only)
    form.set_draft(example_draft("digits-conv"))
    assert not box.isChecked()
    form.set_draft(draft_of(job))
    assert (box.isChecked(), form.draft.job(named_only)) == (True, job)
    assert form.problem == ""
    form.choices.method.setCurrentIndex(form.choices.method.findData(Method.CROWN))
    assert not form.draft.options.force_synchronous, "what does not split has no rounds"
    assert form.problem == ""


def test_example_goes_into_the_form_by_keyboard(lone_window: MainWindow, qtbot: QtBot) -> None:
    tree = lone_window.library.tree
    qtbot.keyClick(lone_window, Qt.Key.Key_1, Qt.KeyboardModifier.ControlModifier)
    qtbot.keyClick(tree, Qt.Key.Key_Home)
    qtbot.keyClick(tree, Qt.Key.Key_Down)
    qtbot.keyClick(tree, Qt.Key.Key_Return)
    assert lone_window.form.draft.complete


def test_start_page_leads_on(lone_window: MainWindow) -> None:
    assert lone_window.welcome.isVisible()
    lone_window.welcome.start.click()
    assert lone_window.form.draft.complete
    assert lone_window.welcome.start.text() == "Run"


def test_start_page_ticks_off_what_is_chosen_and_offers_what_comes_next(lone_window: MainWindow) -> None:
    """Somebody who drops one file after the other is told each time what is still missing."""
    page, form = lone_window.welcome, lone_window.form
    draft = example_draft()
    assert page.start.text().startswith("Try an example")
    assert page._examples.isVisible()
    assert "1: Drop a network" in page.steps.accessibleName()
    opened: list[bool] = []
    page.open_chosen.connect(lambda: opened.append(True))
    page.open_chosen.disconnect(lone_window.commands.open)  # a dialog that would wait for somebody
    form.set_network(draft.network)
    assert "1, done: Network: digits_mlp.onnx; 2: Drop what to prove" in page.steps.accessibleName()
    assert not page._examples.isVisible()
    page.start.click()
    assert opened == [True]
    form.as_measurement.click()
    form.points.as_files.click()
    assert "2: Drop the points" in page.steps.accessibleName()
    form.as_proof.click()
    assert isinstance(draft.property_source, Path)
    form.set_property(draft.property_source)
    assert "2, done: Property: digits-robust/property.vnnlib" in page.steps.accessibleName()
    assert page.start.text() == "Run"
    form.as_benchmark.click()
    assert page.steps.accessibleName().startswith("1: Drop a benchmark’s instances.csv")


def test_read_back_in_words_and_tables_before_anything_runs(window: MainWindow, qtbot: QtBot) -> None:
    window.form.set_draft(example_draft("digits-fooled"))
    with qtbot.waitSignal(window.session.inspected):
        pass
    back = window.form.read_back
    assert "digits_mlp.onnx" in back.words
    assert "64 inputs" in back.words
    assert back.inputs.rowCount() == 64
    assert back.clauses.rowCount() == 9
    assert back.inputs.item(0, 0).text() == "X_0"
    assert all(window.runs.info(each).kind != "inspect" for each in window.runs.ids)


def test_ball_is_read_back_with_its_numbers(window: MainWindow, qtbot: QtBot, tmp_path: Path) -> None:
    center = tmp_path / "digit.npy"
    np.save(center, np.full((1, 1, 8, 8), 0.5, dtype=np.float32))
    network = EXAMPLES / "networks" / "digits_mlp.onnx"
    window.form.set_draft(Draft(network, Ball(center, "0.125", 3, "0", "1")))
    with qtbot.waitSignal(window.session.inspected) as signal:
        pass
    assert signal.args[0].problems == ()
    back = window.form.read_back
    assert "ε-ball" in back.words
    cells = [back.inputs.item(0, column).text() for column in (1, 2)]
    assert [float(cell) for cell in cells] == [0.375, 0.625]
    assert back.clauses.rowCount() == 9


def test_property_that_does_not_fit_the_network_blocks_the_run(window: MainWindow, qtbot: QtBot) -> None:
    network = EXAMPLES / "networks" / "advisor.onnx"
    window.form.set_draft(Draft(network, EXAMPLES / "digits-robust" / "property.vnnlib"))
    with qtbot.waitSignal(window.session.inspected) as signal:
        pass
    assert signal.args[0].problems
    assert window.form.problem
    assert not window.form.run_button.isEnabled()


def test_what_was_read_of_other_files_does_not_stay(window: MainWindow, qtbot: QtBot) -> None:
    window.form.set_draft(example_draft("digits-fooled"))
    with qtbot.waitSignal(window.session.inspected):
        pass
    window.form.set_network(EXAMPLES / "networks" / "advisor.onnx")
    assert "digits_mlp" not in window.form.read_back.words
    assert not window.form.read_back.tables.isVisibleTo(window)
    with qtbot.waitSignal(window.session.inspected):
        pass


def test_answer_to_an_older_question_is_dropped(window: MainWindow) -> None:
    window.session.inspect(example_draft())
    window.session.inspect(example_draft("digits-conv"))
    shown: list[Inspection] = []
    window.session.inspected.connect(shown.append)
    window.link.inspected.emit(Inspection(1, problems=("old",)))
    assert shown == []


def test_the_form_says_what_a_run_needs_before_it_is_sent(window: MainWindow, qtbot: QtBot) -> None:
    """Memory a rank, what there is, and seconds; another method says something else."""
    form, line = window.form, window.form.footer.estimate
    with qtbot.waitSignal(window.session.inspected):
        form.set_draft(example_draft())
    qtbot.waitUntil(lambda: "Needs about" in line.text())
    assert not line.isHidden()
    crown = line.text()
    form.choices.method.setCurrentIndex(form.choices.method.findData(Method.ALPHA_CROWN))
    qtbot.waitUntil(lambda: line.text() != crown)
    form.choices.set_options(Options(sharding=Sharding.ROWS, ranks=2))
    qtbot.waitUntil(lambda: "a rank" in line.text())
    form.choices.set_options(Options(method=Method.COMPLETE))
    qtbot.waitUntil(lambda: "a domain" in line.text())


def test_what_does_not_fit_is_said(window: MainWindow, qtbot: QtBot) -> None:
    draft = example_draft()
    form = window.form
    with qtbot.waitSignal(window.session.inspected):
        form.set_draft(replace(draft, options=Options(memory_budget_bytes=1 << 18)))
    qtbot.waitUntil(lambda: "not fit" in form.footer.estimate.text())
    assert form.footer.estimate.estimate.warns


def test_a_share_of_the_memory_is_of_all_of_it() -> None:
    """As the job itself reads it, and shared by the ranks of a machine; without one, half of what is free."""
    machine = MachineCosts(1e11, 5e10, free_bytes=40 << 20, total_bytes=100 << 20, cores=2)
    assert budget_bytes(Options(memory_budget_share=0.5), machine) == 50 << 20
    assert budget_bytes(Options(memory_budget_share=0.5, ranks=2), machine) == 25 << 20
    assert budget_bytes(Options(ranks=2), machine) == 10 << 20


def test_noise_is_estimated_by_its_points_and_samples(window: MainWindow, qtbot: QtBot) -> None:
    draft = example_draft()
    form, line = window.form, window.form.footer.estimate
    noise = NoiseDraft(draft.network, None, draft.property_source, 8, options=NoiseOptions(samples=1000))
    with qtbot.waitSignal(window.session.inspected):
        form.set_draft(noise)
    qtbot.waitUntil(lambda: "Needs about" in line.text())
    few = line.text()
    form.noise.samples.setValue(100_000)
    qtbot.waitUntil(lambda: line.text() not in ("", few))


def test_an_earlier_run_says_how_long_it_took(window: MainWindow, qtbot: QtBot) -> None:
    draft = example_draft()
    with qtbot.waitSignal(window.session.job_ended):
        window.session.run(draft)
    infos = [window.runs.info(job_id) for job_id in window.runs.ids]
    known = [info for info in infos if info is not None]
    assert "Last time it took" in answer(Question.of(draft, None, known)).text
    other = replace(draft, options=Options(method=Method.IBP))
    assert answer(Question.of(other, None, known)).text == ""


def test_nodes_are_asked_for_where_ranks_can_be_shared(lone_window: MainWindow) -> None:
    """They come with a sharding, count the ranks, and come out of the command line and back."""
    choices, form = lone_window.form.choices, lone_window.form
    assert choices.nodes.isHidden()
    choices.set_options(Options(sharding=Sharding.ROWS, ranks=4, nodes=("a", "b")))
    assert not choices.nodes.isHidden()
    assert choices.on_each.value() == 2
    assert not choices.ranks.isEnabled()
    choices.on_each.setValue(3)
    assert choices.options.ranks == 6
    choices.nodes.setText("a, b c")
    assert choices.options.nodes == ("a", "b", "c")
    assert choices.options.ranks == 9
    options = choices.options
    form.set_draft(replace(example_draft(), options=options))
    assert form.draft.options == options
    assert "--ranks 9 --nodes a,b,c" in form.draft.command()
    choices.nodes.setText("a, a")
    assert "named twice" in form.problem
    choices.sharding.setCurrentIndex(choices.sharding.findData(Sharding.NONE))
    assert choices.options.nodes == ()
    assert choices.options.ranks == 1
    assert choices.nodes.isHidden()
