type Text = string | Record<string, string>;
export function holes(text: Text): string;
export function faults(en: Record<string, Text>, ko: Record<string, Text>, sources: string[]): string[];
export function sources(folder?: string): string[];
export function table(language: 'en' | 'ko'): Record<string, Text>;
