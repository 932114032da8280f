//! The picture in the menu bar: two strands that join into one line, which is a meter of what is left.
//!
//! Drawn here rather than shipped as files, since a level times a state times a scale makes dozens of them. All figures
//! are on a grid of 18 by 18 points, and fall on whole pixels at one and at two pixels to the point.

use tiny_skia::{BlendMode, Color, FillRule, LineCap, Paint, Path, PathBuilder, Pixmap, Rect, Stroke, Transform};

/// The side of the grid, in points.
pub const POINTS: u32 = 18;
/// How many steps the meter has; one is one pixel at one pixel to the point.
pub const STEPS: u8 = 6;

/// What the picture says. Two equal ones need no new picture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Look {
    /// Requests are routed. `low` cuts the meter open: little is left.
    Routing {
        /// How much is left, in steps.
        level: u8,
        /// Whether that is little.
        low: bool,
    },
    /// Every seat rests.
    Resting,
    /// The owner has paused the router.
    Paused {
        /// How much is left, in steps.
        level: u8,
    },
    /// Something wants a person.
    Problem {
        /// Whether the router still listens; if not, the picture is faint.
        listening: bool,
    },
}

/// A drawn picture, `side` by `side` pixels, as rows of red, green, blue and alpha.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Picture {
    /// Its pixels.
    pub rgba: Vec<u8>,
    /// Its width, and its height.
    pub side: u32,
}

/// Draws `look` in one `ink`, with so many pixels to the point.
pub fn draw(look: Look, scale: u32, ink: [u8; 3]) -> Picture {
    let side = POINTS * scale;
    let mut canvas = Canvas {
        pixels: Pixmap::new(side, side).expect("a side of some pixels"),
        scale: scale as f32,
        ink,
        alpha: 255,
    };
    match look {
        Look::Routing { level, low } => {
            canvas.strands(8.0, 1.5);
            canvas.frame(8.5, 9.0);
            canvas.level(level);
            if low {
                canvas.notch();
            }
        }
        Look::Resting => {
            canvas.strands(8.0, 1.0);
            canvas.frame(8.5, 9.0);
        }
        Look::Paused { level } => {
            canvas.block(1.0, 4.0, 2.0, 10.0);
            canvas.block(5.0, 4.0, 2.0, 10.0);
            canvas.frame(8.5, 9.0);
            canvas.level(level);
        }
        Look::Problem { listening } => {
            canvas.alpha = if listening { 255 } else { 102 };
            canvas.strands(5.2, 1.0);
            canvas.block(7.0, 4.0, 2.0, 6.5);
            canvas.block(7.0, 12.0, 2.0, 2.0);
            canvas.frame(11.5, 6.0);
        }
    }
    Picture {
        rgba: canvas
            .pixels
            .pixels()
            .iter()
            .flat_map(|pixel| {
                let pixel = pixel.demultiply();
                [pixel.red(), pixel.green(), pixel.blue(), pixel.alpha()]
            })
            .collect(),
        side,
    }
}

struct Canvas {
    pixels: Pixmap,
    scale: f32,
    ink: [u8; 3],
    alpha: u8,
}

impl Canvas {
    fn paint(&self) -> Paint<'static> {
        let [red, green, blue] = self.ink;
        let mut paint = Paint::default();
        paint.set_color(Color::from_rgba8(red, green, blue, self.alpha));
        paint
    }

    fn stroke(&mut self, path: &Path, width: f32) {
        let stroke = Stroke {
            width,
            line_cap: LineCap::Round,
            ..Stroke::default()
        };
        let (paint, zoom) = (self.paint(), Transform::from_scale(self.scale, self.scale));
        self.pixels.stroke_path(path, &paint, &stroke, zoom, None);
    }

    /// The two strands, joining at `end`.
    fn strands(&mut self, end: f32, width: f32) {
        const START: f32 = 0.9;
        let squeeze = |x: f32| START + (x - START) * (end - START) / (8.0 - START);
        let mut path = PathBuilder::new();
        for from in [3.25, 14.75] {
            path.move_to(START, from);
            path.cubic_to(squeeze(5.0), from, squeeze(3.6), 9.0, end, 9.0);
        }
        if let Some(path) = path.finish() {
            self.stroke(&path, width);
        }
    }

    /// The meter's frame.
    fn frame(&mut self, x: f32, width: f32) {
        if let Some(path) = rounded(x, 6.5, width, 5.0, 1.75) {
            self.stroke(&path, 1.0);
        }
    }

    /// What is left.
    fn level(&mut self, steps: u8) {
        if steps > 0 {
            self.block(10.0, 8.0, f32::from(steps.min(STEPS)), 2.0);
        }
    }

    /// Opens the frame above and below.
    fn notch(&mut self) {
        let paint = Paint {
            blend_mode: BlendMode::Clear,
            ..Paint::default()
        };
        let zoom = Transform::from_scale(self.scale, self.scale);
        for y in [6.0, 11.0] {
            if let Some(gap) = Rect::from_xywh(12.0, y, 2.0, 1.0) {
                self.pixels.fill_rect(gap, &paint, zoom, None);
            }
        }
    }

    /// A filled block with its corners taken off.
    fn block(&mut self, x: f32, y: f32, width: f32, height: f32) {
        // One that is as narrow as its corners would lose itself in them.
        let radius = if width > 1.0 { 0.5 } else { 0.0 };
        if let Some(path) = rounded(x, y, width, height, radius) {
            let (paint, zoom) = (self.paint(), Transform::from_scale(self.scale, self.scale));
            self.pixels.fill_path(&path, &paint, FillRule::Winding, zoom, None);
        }
    }
}

fn rounded(x: f32, y: f32, width: f32, height: f32, radius: f32) -> Option<Path> {
    /// How far the handles of a quarter circle reach.
    const HANDLE: f32 = 0.552_285;
    let (right, bottom, inset) = (x + width, y + height, radius * (1.0 - HANDLE));
    let mut path = PathBuilder::new();
    path.move_to(x + radius, y);
    path.line_to(right - radius, y);
    path.cubic_to(right - inset, y, right, y + inset, right, y + radius);
    path.line_to(right, bottom - radius);
    path.cubic_to(right, bottom - inset, right - inset, bottom, right - radius, bottom);
    path.line_to(x + radius, bottom);
    path.cubic_to(x + inset, bottom, x, bottom - inset, x, bottom - radius);
    path.line_to(x, y + radius);
    path.cubic_to(x, y + inset, x + inset, y, x + radius, y);
    path.close();
    path.finish()
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;

    use super::*;

    const INK: [u8; 3] = [27, 28, 30];

    /// The alpha of each pixel: blank, faint, half, nearly full, full.
    fn text(look: Look) -> String {
        let picture = draw(look, 1, INK);
        let mut text = String::new();
        for row in picture.rgba.chunks(picture.side as usize * 4) {
            let cells = row.chunks(4).map(|pixel| match pixel[3] {
                0..=15 => ' ',
                16..=95 => '.',
                96..=175 => 'o',
                176..=239 => 'O',
                240..=255 => '#',
            });
            let line: String = cells.collect();
            let _ = writeln!(text, "|{line}|");
        }
        text
    }

    #[test]
    fn every_state_has_its_picture() {
        let looks = [
            ("routing, four steps left", Look::Routing { level: 4, low: false }),
            ("low", Look::Routing { level: 1, low: true }),
            ("resting", Look::Resting),
            ("paused", Look::Paused { level: 6 }),
            ("problem, listening", Look::Problem { listening: true }),
            ("problem, not listening", Look::Problem { listening: false }),
        ];
        let all: String = looks
            .iter()
            .map(|(name, look)| format!("{name}\n{}", text(*look)))
            .collect();
        insta::assert_snapshot!(all);
    }

    #[test]
    fn a_step_is_a_pixel_and_no_two_looks_are_alike() {
        let mut seen = Vec::new();
        for level in 0..=STEPS {
            seen.push(draw(Look::Routing { level, low: false }, 1, INK));
            seen.push(draw(Look::Paused { level }, 1, INK));
        }
        seen.push(draw(Look::Routing { level: 1, low: true }, 1, INK));
        seen.push(draw(Look::Resting, 1, INK));
        seen.push(draw(Look::Problem { listening: true }, 1, INK));
        seen.push(draw(Look::Problem { listening: false }, 1, INK));
        for (index, one) in seen.iter().enumerate() {
            assert!(!seen[..index].contains(one), "picture {index} was there before");
        }
        let inked = |level| {
            let picture = draw(Look::Routing { level, low: false }, 1, INK);
            picture.rgba.chunks(4).filter(|pixel| pixel[3] > 200).count()
        };
        assert_eq!(inked(6) - inked(3), 6, "three steps of one by two pixels");
    }

    #[test]
    fn a_template_is_one_ink_with_alpha() {
        for scale in [1, 2] {
            let picture = draw(Look::Routing { level: 3, low: false }, scale, [0, 0, 0]);
            assert_eq!(picture.side, 18 * scale);
            assert_eq!(picture.rgba.len() as u32, picture.side * picture.side * 4);
            assert!(picture.rgba.chunks(4).all(|pixel| pixel[..3] == [0, 0, 0]));
        }
    }
}
