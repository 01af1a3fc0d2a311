//! State diagrams of the book, drawn from the texts that the code generates from its transition tables.
//!
//! The book is read without a network and without scripts, so a diagram is an image. The positions of the boxes are
//! set by hand. The arrows, and the table of their causes, come from the text.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

/// A state and the position of its box, in columns and rows; `[*]` is the initial state.
pub type Place = (&'static str, f32, f32);

const COLUMN: f32 = 190.0;
const ROW: f32 = 90.0;
const MARGIN: (f32, f32) = (70.0, 40.0);
const BOX: (f32, f32) = (132.0, 38.0);
const START: &str = "[*]";

/// Returns the transitions in the text of a state diagram, in order: from, to, cause.
pub fn transitions(text: &str) -> Vec<(&str, &str, &str)> {
    let lines = text.lines().filter_map(|line| line.trim().split_once(" --> "));
    lines
        .map(|(from, rest)| {
            let (to, cause) = rest.split_once(": ").unwrap_or((rest, ""));
            (from, to, cause)
        })
        .collect()
}

/// Returns a Markdown table of the causes of each transition.
pub fn table(text: &str) -> String {
    let mut causes: Vec<((&str, &str), Vec<String>)> = Vec::new();
    for (from, to, cause) in
        transitions(text).into_iter().filter(|(from, to, _)| *from != START && *to != START)
    {
        let words = cause.split(", ").map(|word| format!("`{word}`"));
        match causes.iter_mut().find(|(pair, _)| *pair == (from, to)) {
            Some((_, known)) => known.extend(words),
            None => causes.push(((from, to), words.collect())),
        }
    }
    let mut table = "| from | to | causes |\n|---|---|---|\n".to_owned();
    for ((from, to), words) in causes {
        let _ = writeln!(table, "| {from} | {to} | {} |", words.join(", "));
    }
    table
}

/// Returns the diagram as SVG.
///
/// # Panics
/// If a state has no position.
pub fn svg(text: &str, places: &[Place]) -> String {
    let at: BTreeMap<&str, (f32, f32)> = places
        .iter()
        .map(|(state, column, row)| (*state, (MARGIN.0 + COLUMN * column, MARGIN.1 + ROW * row)))
        .collect();
    let all = transitions(text);
    let arrows: BTreeSet<_> = all.iter().map(|(from, to, _)| (*from, *to)).collect();
    let lasting: BTreeSet<_> = all.iter().filter(|(_, to, _)| *to != START).map(|(from, ..)| *from).collect();
    let width = at.values().fold(0.0_f32, |most, (x, _)| most.max(*x)) + MARGIN.0 + 5.0;
    let height = at.values().fold(0.0_f32, |most, (_, y)| most.max(*y)) + MARGIN.1;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" font-family=\"sans-serif\" font-size=\"15\">\n\
         <defs><marker id=\"a\" viewBox=\"0 0 8 8\" refX=\"7\" refY=\"4\" markerWidth=\"8\" markerHeight=\"8\" orient=\"auto\">\
         <path d=\"M0 0 8 4 0 8z\" fill=\"#555\"/></marker></defs>\n\
         <rect width=\"{width}\" height=\"{height}\" fill=\"#fff\"/>\n"
    );
    for &(from, to) in arrows.iter().filter(|(from, to)| from != to && *to != START) {
        let (a, b) = (at[from], at[to]);
        let length = (b.0 - a.0).hypot(b.1 - a.1);
        // Two states with transitions in both directions have two parallel arrows.
        let aside = if arrows.contains(&(to, from)) { 7.0 } else { 0.0 };
        let (x, y) = ((a.1 - b.1) / length * aside, (b.0 - a.0) / length * aside);
        let (a, b) = ((a.0 + x, a.1 + y), (b.0 + x, b.1 + y));
        let (first, last) = (border(a, b, at[from], from), border(b, a, at[to], to));
        let _ = writeln!(
            svg,
            "<path d=\"M{:.1} {:.1} {:.1} {:.1}\" stroke=\"#555\" fill=\"none\" marker-end=\"url(#a)\"/>",
            first.0, first.1, last.0, last.1
        );
    }
    for (state, (x, y)) in &at {
        if *state == START {
            let _ = writeln!(svg, "<circle cx=\"{x}\" cy=\"{y}\" r=\"8\" fill=\"#555\"/>");
            continue;
        }
        let (left, top) = (x - BOX.0 / 2.0, y - BOX.1 / 2.0);
        // A final status has a thick border.
        let stroke = if lasting.contains(state) { 1 } else { 3 };
        let _ = writeln!(
            svg,
            "<rect x=\"{left}\" y=\"{top}\" width=\"{}\" height=\"{}\" rx=\"6\" fill=\"#f4f6fa\" stroke=\"#335\" stroke-width=\"{stroke}\"/>\n\
             <text x=\"{x}\" y=\"{}\" text-anchor=\"middle\" fill=\"#223\">{state}</text>",
            BOX.0,
            BOX.1,
            y + 5.0
        );
    }
    svg + "</svg>\n"
}

/// Returns the point at which the line from `inside` to `outside` leaves the shape of a state at `center`.
fn border(inside: (f32, f32), outside: (f32, f32), center: (f32, f32), state: &str) -> (f32, f32) {
    let (dx, dy) = (outside.0 - inside.0, outside.1 - inside.1);
    let half = if state == START { (8.0, 8.0) } else { (BOX.0 / 2.0 + 2.0, BOX.1 / 2.0 + 2.0) };
    let until = |from: f32, by: f32, center: f32, half: f32| match by {
        by if by > 0.0 => (center + half - from) / by,
        by if by < 0.0 => (center - half - from) / by,
        _ => f32::INFINITY,
    };
    let part = until(inside.0, dx, center.0, half.0).min(until(inside.1, dy, center.1, half.1));
    (inside.0 + dx * part, inside.1 + dy * part)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str =
        "stateDiagram-v2\n    [*] --> a: made\n    a --> b: x\n    a --> b: y, z\n    b --> [*]\n";

    #[test]
    fn every_transition_is_drawn_once_and_every_cause_is_in_the_table() {
        let svg = svg(TEXT, &[(START, 0.0, 0.0), ("a", 1.0, 0.0), ("b", 2.0, 1.0)]);
        assert_eq!(svg.matches("<path d=\"M").count(), 3, "the arrow head and two arrows");
        assert_eq!((svg.matches(">a</text>").count(), svg.matches("stroke-width=\"3\"").count()), (1, 1));
        assert_eq!(table(TEXT), "| from | to | causes |\n|---|---|---|\n| a | b | `x`, `y`, `z` |\n");
    }
}
