//! SVG shapes and texts.

use std::fmt::Write as _;

const STYLE: &str = "
  svg { background: var(--paper); font-family: system-ui, -apple-system, 'Segoe UI', sans-serif;
    --paper: #ffffff; --ink: #17202e; --soft: #5b6779; --grid: #e3e8ef; --blue: #2f6fde; --red: #d93a3a;
    --amber: #dd8a0b; --violet: #8450d8; --green: #17946a; }
  @media (prefers-color-scheme: dark) { svg { --paper: #10161f; --ink: #e6ebf2; --soft: #97a3b4;
    --grid: #263140; --blue: #6aa1ff; --red: #ff6b6b; --amber: #f7b23b; --violet: #b18cff; --green: #3fcf9b; } }
  text { fill: var(--ink); font-size: 12px; }
  .title { font-size: 20px; font-weight: 600; } .told { font-size: 13.5px; fill: var(--soft); }
  .panel { font-size: 13px; font-weight: 600; } .key, .scale, .tick { fill: var(--soft); }
  .scale { text-anchor: end; font-size: 11px; } .tick { text-anchor: middle; font-size: 11px; }
  .day { fill: var(--ink); font-weight: 600; }
  .grid { stroke: var(--grid); } .base { stroke: var(--soft); stroke-width: .6; }
  .firing { fill: var(--blue); } .late { fill: var(--red); } .waiting { fill: var(--amber); }
  .band, .band-key { fill: var(--red); fill-opacity: .14; } .shade { fill: var(--blue); }
  .cpu { fill: var(--blue); } .memory { fill: var(--violet); } .slots { fill: var(--green); }
  .cpu-area { fill: var(--blue); fill-opacity: .16; }
  .cpu-line, .memory-line, .slots-line { fill: none; stroke-width: 1.5; }
  .cpu-line { stroke: var(--blue); } .memory-line { stroke: var(--violet); } .slots-line { stroke: var(--green); }
";

/// A point; y increases downwards.
#[derive(Debug, Clone, Copy)]
pub(super) struct Point {
    pub(super) x: f64,
    pub(super) y: f64,
}

/// Shapes drawn so far; later shapes cover earlier ones.
#[derive(Debug, Default)]
pub(super) struct Canvas {
    shapes: String,
}

impl Canvas {
    /// Draws below all existing shapes.
    pub(super) fn behind(&mut self, draw: impl FnOnce(&mut Self)) {
        let mut under = Self::default();
        draw(&mut under);
        self.shapes.insert_str(0, &under.shapes);
    }

    pub(super) fn text(&mut self, Point { x, y }: Point, class: &str, text: &str) {
        let text = escaped(text);
        let _ = writeln!(self.shapes, "<text x=\"{x:.1}\" y=\"{y:.1}\" class=\"{class}\">{text}</text>");
    }

    /// Draws a filled rectangle; `told` is its tooltip.
    pub(super) fn rect(&mut self, at: Point, width: f64, height: f64, class: &str, told: Option<&str>) {
        self.shape(at, (width, height), &format!("class=\"{class}\""), told);
    }

    /// Draws a rectangle in the colour of allocation; `depth` from 0 to 1 is its opacity.
    pub(super) fn shade(&mut self, at: Point, width: f64, height: f64, depth: f64, told: &str) {
        let depth = 0.06 + 0.94 * depth;
        self.shape(at, (width, height), &format!("class=\"shade\" fill-opacity=\"{depth:.2}\""), Some(told));
    }

    fn shape(&mut self, Point { x, y }: Point, (width, height): (f64, f64), look: &str, told: Option<&str>) {
        let _ = write!(
            self.shapes,
            "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" {look}"
        );
        match told {
            Some(told) => {
                let _ = writeln!(self.shapes, "><title>{}</title></rect>", escaped(told));
            }
            None => self.shapes.push_str("/>\n"),
        }
    }

    pub(super) fn path(&mut self, path: &str, class: &str) {
        let _ = writeln!(self.shapes, "<path d=\"{path}\" class=\"{class}\"/>");
    }

    /// Draws the base line of a panel.
    pub(super) fn line(&mut self, from: f64, to: f64, y: f64) {
        let _ = writeln!(
            self.shapes,
            "<line x1=\"{from:.1}\" x2=\"{to:.1}\" y1=\"{y:.1}\" y2=\"{y:.1}\" class=\"base\"/>"
        );
    }

    /// Draws a vertical grid line.
    pub(super) fn upright(&mut self, x: f64, top: f64, bottom: f64) {
        let _ = writeln!(
            self.shapes,
            "<line x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{top:.1}\" y2=\"{bottom:.1}\" class=\"grid\"/>"
        );
    }

    pub(super) fn finish(self, width: f64, height: f64) -> String {
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width:.0} {height:.0}\" \
             width=\"{width:.0}\" height=\"{height:.0}\" role=\"img\">\n<style>{STYLE}</style>\n\
             <rect width=\"100%\" height=\"100%\" style=\"fill: var(--paper)\"/>\n{}</svg>\n",
            self.shapes
        )
    }
}

/// Escapes a text for XML.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            c if c.is_control() => out.push(' '),
            c => out.push(c),
        }
    }
    out
}
