// Numbers, times and names as people read them. Pure: the moment, the language and the zone are arguments.

export type Language = 'en' | 'ko';

/** How times and shares are written. */
export type Style = {
  language: Language;
  hour12: boolean;
  /** An IANA zone; the system's if absent. */
  zone?: string;
  percent: 'used' | 'left';
  resets: 'left' | 'clock';
};

export const DASH = '–';
/** A narrow space that does not break, between a number and its unit. */
const THIN = '\u202f';

const MINUTE = 60;
const DAY = 86_400;

/** A share in whole per cent of `basisPoints`, rounded so that full is full only when it is. Unknown is a dash. */
export function percent(basisPoints: number | null | undefined, style: Pick<Style, 'percent'>): string {
  const share = shown(basisPoints, style);
  return share === null ? DASH : `${share}%`;
}

/** The share that is shown: used or left, from 0 to 100. */
export function shown(basisPoints: number | null | undefined, style: Pick<Style, 'percent'>): number | null {
  if (basisPoints === null || basisPoints === undefined) return null;
  const used = Math.min(100, Math.floor(basisPoints / 100));
  return style.percent === 'used' ? used : 100 - used;
}

/** To the nearest minute: the same reset is told a second earlier or later from time to time. For what is to come;
 * what has been keeps its own minute. */
export const minute = (at: number) => Math.round(at / MINUTE) * MINUTE;

/** A span of seconds in its two largest units: `2 h 10 m`. */
export function span(seconds: number, language: Language): string {
  const minutes = Math.max(0, Math.ceil(seconds / MINUTE));
  const [days, hours, rest] = [Math.floor(minutes / 1_440), Math.floor((minutes % 1_440) / 60), minutes % 60];
  const unit = (count: number, en: string, ko: string) => (language === 'ko' ? `${count}${ko}` : `${count}${THIN}${en}`);
  const between = language === 'ko' ? ' ' : THIN;
  const pad = (count: number) => (language === 'ko' ? `${count}분` : `${String(count).padStart(2, '0')}${THIN}m`);
  if (days > 0) return unit(days, 'd', '일') + (hours > 0 ? between + unit(hours, 'h', '시간') : '');
  if (hours > 0) return unit(hours, 'h', '시간') + (rest > 0 ? between + pad(rest) : '');
  return unit(minutes, 'm', '분');
}

/** The time until `at`, from absolute time: a change of the clocks in between does not count. */
export const countdown = (at: number, now: number, language: Language) => span(minute(at) - now, language);

const formats = new Map<string, Intl.DateTimeFormat>();

function format(style: Style, options: Intl.DateTimeFormatOptions): Intl.DateTimeFormat {
  const key = JSON.stringify([style.language, style.zone, options]);
  const made =
    formats.get(key) ??
    new Intl.DateTimeFormat(style.language === 'ko' ? 'ko-KR' : 'en-US', { timeZone: style.zone, ...options });
  formats.set(key, made);
  return made;
}

const hours = (style: Style): Intl.DateTimeFormatOptions =>
  style.hour12
    ? { hour: 'numeric', minute: '2-digit', hourCycle: 'h12' }
    : { hour: '2-digit', minute: '2-digit', hourCycle: 'h23' };

/** The time of day at `at`: `16:20`, or `4:20 PM` where the system counts to twelve. */
export const time = (at: number, style: Style) => format(style, hours(style)).format(at * 1_000);

/** The time of day with seconds. */
export const timeExactly = (at: number, style: Style) =>
  format(style, { ...hours(style), second: '2-digit' }).format(at * 1_000);

/** The hour alone, for an axis: `16`, `4 PM`. */
export function hour(at: number, style: Style): string {
  // In Korean the half of the day stands before the hour, and both are wider than what lies between two marks.
  const twelve = style.hour12 && style.language !== 'ko';
  const text = format(style, { hour: twelve ? 'numeric' : '2-digit', hourCycle: twelve ? 'h12' : 'h23' }).format(at * 1_000);
  return twelve ? text : text.replace(/\D+$/, '');
}

/** The day of the week: `Thu`, or `Thursday` in a sentence. */
export const weekday = (at: number, style: Style, length: 'short' | 'long' = 'short') =>
  format(style, { weekday: length }).format(at * 1_000);

/** The day of the year: `Oct 3`. */
export const date = (at: number, style: Style) => format(style, { month: 'short', day: 'numeric' }).format(at * 1_000);

const day = (at: number, style: Style) =>
  format({ ...style, language: 'en' }, { year: 'numeric', month: '2-digit', day: '2-digit' }).format(at * 1_000);

/** Whether `at` is on the same day as `now`, in the reader's zone. */
export const isToday = (at: number, now: number, style: Style) => day(at, style) === day(now, style);

/** A moment: the time of day; with its weekday if it is another day, with the date if it is a week off. */
export function moment(at: number, now: number, style: Style, length: 'short' | 'long' = 'short'): string {
  const told = at > now ? minute(at) : at;
  if (isToday(told, now, style)) return time(told, style);
  if (Math.abs(told - now) < 6 * DAY) return `${weekday(told, style, length)} ${time(told, style)}`;
  return `${date(told, style)} ${time(told, style)}`;
}

/** When a window resets: a countdown within the day, else the weekday and time; unknown is a dash. */
export function reset(at: number | null | undefined, now: number, style: Style): string {
  if (at === null || at === undefined) return DASH;
  return style.resets === 'left' && at - now < DAY ? countdown(at, now, style.language) : moment(at, now, style);
}

/** A count of tokens: `48.2 k`, `0.4 k`; a handful as it is. */
export function tokens(count: number | null | undefined): string {
  if (count === null || count === undefined) return DASH;
  if (count < 100) return String(count);
  const [value, unit] = count < 1_000_000 ? [count / 1_000, 'k'] : [count / 1_000_000, 'M'];
  return `${value < 100 ? value.toFixed(1) : Math.round(value)}${THIN}${unit}`;
}

/** Milliseconds as seconds: `2.1 s`. */
export const seconds = (ms: number, language: Language) => (ms / 1_000).toFixed(1) + (language === 'ko' ? '초' : `${THIN}s`);

/** How long something short took: `212 ms`, from a second on `2.1 s`. */
export const took = (ms: number, language: Language) => (ms >= 1_000 ? seconds(ms, language) : `${ms < 1 ? '<\u202f1' : ms}${THIN}ms`);

/** A whole number with thin spaces between its thousands. */
export const thousands = (count: number) => String(count).replace(/\B(?=(\d{3})+$)/g, THIN);

/** `text` no longer than `most` letters, shortened in its middle. */
export function middle(text: string, most: number): string {
  if (text.length <= most) return text;
  const end = Math.floor((most - 1) / 2);
  return `${text.slice(0, most - 1 - end)}…${text.slice(-end)}`;
}

/** About how wide `text` is, in letters of the small type. */
const letters = (text: string) => [...text].reduce((sum, letter) => sum + (letter > '\u1100' ? 2 : letter === ' ' ? 0.6 : 1.25), 0);

/** `address` as far as it fits on a line of `room` letters beside `title`; nothing where only a stump would be left. */
export function addressBeside(title: string, address: string, room = 47): string {
  const most = Math.floor((room - letters(title)) * 0.96);
  return most < Math.min(address.length, 14) ? '' : middle(address, most);
}

/** A model's family, as people call it: `claude-opus-5-5` is Opus. */
export function family(model: string): string {
  const word = model.replace(/^claude-/, '').match(/[a-z]+/i)?.[0];
  return word ? word[0]!.toUpperCase() + word.slice(1) : model;
}

/** A plan, as it is sold: `max` is Max, `default_claude_max_20x` is Max 20x. */
export function plan(text: string): string {
  const [, name, size] = text.match(/^(?:default_)?(?:claude_)?([a-z]+)(?:[ _](\d+x))?$/i) ?? [];
  return name ? name[0]!.toUpperCase() + name.slice(1) + (size ? ` ${size}` : '') : text;
}

/** `n`th, in English. */
export function ordinal(n: number): string {
  const suffix = { one: 'st', two: 'nd', few: 'rd', other: 'th' } as Record<string, string>;
  return `${n}${suffix[new Intl.PluralRules('en', { type: 'ordinal' }).select(n)]}`;
}

/** Whether the system's clock counts to twelve. */
export function systemCountsToTwelve(): boolean {
  const cycle = new Intl.DateTimeFormat(undefined, { hour: 'numeric' }).resolvedOptions().hourCycle;
  return cycle === 'h12' || cycle === 'h11';
}
