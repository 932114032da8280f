//! Where the panel goes: under its icon, on the screen that shows the icon, wholly visible.
//!
//! The icon's place comes in pixels of the screen that owns it, and which one that is must be found out: another screen
//! may have another scale, and an icon of a menu bar that hides itself lies off every screen.

/// A point, in points (not pixels) of the whole desktop.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    /// From the left.
    pub x: f64,
    /// From the top.
    pub y: f64,
}

/// A size, in points.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Size {
    /// Its width.
    pub width: f64,
    /// Its height.
    pub height: f64,
}

/// Where an icon is drawn, in pixels of its own screen.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct IconRect {
    /// Its left edge.
    pub x: f64,
    /// Its upper edge.
    pub y: f64,
    /// Its width.
    pub width: f64,
    /// Its height.
    pub height: f64,
}

/// What the panel hangs on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Anchor {
    /// The icon.
    Icon(IconRect),
    /// The corner that icons stand in, where the system does not tell.
    Corner,
    /// Nothing: there is no icon to be seen, and who looks for the app looks at the middle.
    Middle,
}

/// A screen, the main one first among several. In points, but for the scale.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Screen {
    /// Its left edge.
    pub x: f64,
    /// Its upper edge.
    pub y: f64,
    /// Its width.
    pub width: f64,
    /// Its height.
    pub height: f64,
    /// Pixels to the point.
    pub scale: f64,
    /// What a menu bar or a dock takes at the top; 0 if it hides.
    pub top: f64,
    /// What a dock takes at the bottom.
    pub bottom: f64,
}

/// How far from the menu bar and from a screen's edges the panel keeps, in points.
const GAP: f64 = 6.0;
/// How tall a menu bar's icon can be, in points. It tells screens of different scales apart, whose pixels overlap.
const TALL: std::ops::RangeInclusive<f64> = 18.0..=42.0;
/// How far from a screen's upper edge an icon may lie and still be on its menu bar, in points: a notch makes it high.
const BAR: f64 = 48.0;

/// Where the panel's upper left corner goes, and how tall it may be there.
///
/// Without a screen the answer is the desktop's corner.
pub fn place(anchor: Anchor, screens: &[Screen], panel: Size) -> (Point, f64) {
    let icon = match anchor {
        Anchor::Icon(icon) => Some(icon),
        Anchor::Corner | Anchor::Middle => None,
    };
    let owner = icon.and_then(|icon| {
        screens
            .iter()
            .find_map(|screen| middle_on(icon, screen).map(|middle| (screen, middle)))
    });
    let (screen, middle) = match (owner, screens.first()) {
        (Some((screen, middle)), _) => (screen, Some(middle)),
        (None, Some(main)) => (main, None),
        (None, None) => return (Point { x: GAP, y: GAP }, panel.height),
    };
    let (left, right) = (screen.x + GAP, screen.x + screen.width - panel.width - GAP);
    // Where the icon is not known, the corner that icons stand in.
    let wanted = middle.map_or(right, |middle| middle - panel.width / 2.0);
    let upper = screen.y + screen.top + GAP;
    let room = screen.height - screen.top - screen.bottom - 2.0 * GAP;
    let place = match anchor {
        Anchor::Middle => Point {
            x: (screen.x + (screen.width - panel.width) / 2.0).round(),
            y: (upper + (room - panel.height.min(room)) / 2.0).round(),
        },
        Anchor::Icon(_) | Anchor::Corner => Point {
            x: wanted.min(right).max(left).round(),
            y: upper.round(),
        },
    };
    (place, panel.height.min(room))
}

/// The icon's middle in points, if it lies on that screen's menu bar.
fn middle_on(icon: IconRect, screen: &Screen) -> Option<f64> {
    let (middle, upper) = ((icon.x + icon.width / 2.0) / screen.scale, icon.y / screen.scale);
    let across = (screen.x..screen.x + screen.width).contains(&middle);
    // A bar that hides itself has its icons above the screen.
    let along = (screen.y - BAR..screen.y + BAR).contains(&upper);
    (across && along && TALL.contains(&(icon.height / screen.scale))).then_some(middle)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PANEL: Size = Size {
        width: 360.0,
        height: 500.0,
    };

    fn screen(x: f64, y: f64, width: f64, height: f64, scale: f64, top: f64) -> Screen {
        Screen {
            x,
            y,
            width,
            height,
            scale,
            top,
            bottom: 0.0,
        }
    }

    /// On a screen with two pixels to the point.
    fn fine(x: f64, y: f64) -> Anchor {
        Anchor::Icon(IconRect {
            x,
            y,
            width: 64.0,
            height: 48.0,
        })
    }

    /// On a screen with one.
    fn coarse(x: f64, y: f64) -> Anchor {
        Anchor::Icon(IconRect {
            x,
            y,
            width: 64.0,
            height: 24.0,
        })
    }

    #[test]
    fn the_panel_hangs_under_its_icon_on_the_icons_screen() {
        let retina = screen(0.0, 0.0, 1512.0, 982.0, 2.0, 25.0);
        let notched = screen(0.0, 0.0, 1512.0, 982.0, 2.0, 37.0);
        let beside = screen(1512.0, 0.0, 1920.0, 1080.0, 1.0, 25.0);
        let left = screen(-2560.0, -200.0, 2560.0, 1440.0, 1.0, 25.0);
        let above = screen(0.0, -1080.0, 1920.0, 1080.0, 1.0, 25.0);
        let hiding = screen(0.0, 0.0, 1512.0, 982.0, 2.0, 0.0);
        type Row<'a> = (&'a str, &'a [Screen], Anchor, (f64, f64));
        let table: &[Row<'_>] = &[
            ("one Retina screen", &[retina], fine(2000.0, 0.0), (836.0, 31.0)),
            (
                "a notch makes the bar high",
                &[notched],
                fine(2000.0, 10.0),
                (836.0, 43.0),
            ),
            (
                "near the right edge it stays on the screen",
                &[retina],
                fine(2950.0, 0.0),
                (1146.0, 31.0),
            ),
            ("near the left edge too", &[retina], fine(10.0, 0.0), (6.0, 31.0)),
            (
                "on the second screen, of another scale",
                &[retina, beside],
                coarse(3000.0, 0.0),
                (2852.0, 31.0),
            ),
            (
                "whose pixels the first one has as well",
                &[retina, beside],
                coarse(2000.0, 0.0),
                (1852.0, 31.0),
            ),
            (
                "and the other way round",
                &[retina, beside],
                fine(2000.0, 0.0),
                (836.0, 31.0),
            ),
            (
                "on a screen left of the main one",
                &[retina, left],
                coarse(-1000.0, -200.0),
                (-1148.0, -169.0),
            ),
            (
                "on a screen above the main one",
                &[retina, above],
                coarse(1200.0, -1080.0),
                (1052.0, -1049.0),
            ),
            (
                "a bar that hides has its icons above",
                &[hiding],
                fine(2000.0, -48.0),
                (836.0, 6.0),
            ),
            (
                "an icon that is parked off every screen",
                &[retina],
                fine(-1.0, 3000.0),
                (1146.0, 31.0),
            ),
            (
                "an icon without width is not shown",
                &[retina],
                Anchor::Icon(IconRect {
                    x: 0.0,
                    y: 0.0,
                    width: 0.0,
                    height: 0.0,
                }),
                (1146.0, 31.0),
            ),
            (
                "no icon told: the main screen's corner",
                &[beside, retina],
                Anchor::Corner,
                (3066.0, 31.0),
            ),
        ];
        for (what, screens, anchor, (x, y)) in table {
            let (place, _) = place(*anchor, screens, PANEL);
            assert_eq!((place.x, place.y), (*x, *y), "{what}");
        }
    }

    #[test]
    fn a_low_screen_makes_the_panel_shorter() {
        let low = Screen {
            bottom: 60.0,
            ..screen(0.0, 0.0, 800.0, 480.0, 1.0, 24.0)
        };
        let (place, height) = place(Anchor::Corner, &[low], PANEL);
        assert_eq!((place.y, height), (30.0, 384.0));
        assert!(place.y + height <= low.height - low.bottom);
    }

    #[test]
    fn gu_05_without_an_icon_to_be_seen_it_opens_in_the_middle() {
        let main = screen(0.0, 0.0, 1512.0, 982.0, 2.0, 25.0);
        let (place, _) = place(Anchor::Middle, &[main], PANEL);
        assert_eq!((place.x, place.y), (576.0, 254.0));
    }

    #[test]
    fn without_a_screen_it_is_somewhere() {
        assert_eq!(place(Anchor::Corner, &[], PANEL).1, PANEL.height);
    }
}
