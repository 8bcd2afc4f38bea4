import type { PersonSettings } from '../people.ts'
import { listTimeText, zonedTimeText } from '../words.ts'
import { type Html, html } from './html.ts'

/** What a screen needs to write times: one moment for the whole page, in the person's zone. */
export interface View {
  settings: PersonSettings
  now: Date
  /** `14:02:07 · 4 min ago`, over 24 h `28 Nov 14:02`; nothing is `–`. The exact time in UTC is in its title. */
  time(at: Date | string | null): Html
  /** The whole time with its zone, for places with one time only. */
  exactTime(at: Date | string | null): Html
}

const DAY_MS = 86_400_000

/** The view of one request. */
export function viewOf(settings: PersonSettings, now: Date): View {
  const element = (given: Date | string | null, write: (at: Date) => string, isRelative: (at: Date) => boolean) => {
    if (given === null) return html`–`
    const at = new Date(given)
    const utc = `${at.toISOString().slice(0, 23).replace('T', ' ')} UTC`
    return html`<time datetime="${at.toISOString()}" title="${utc}"${isRelative(at) && html` data-relative`}>${write(at)}</time>`
  }
  return {
    settings,
    now,
    time: (given) =>
      element(
        given,
        (at) => listTimeText(at, now, settings.timeZone),
        (at) => Math.abs(now.getTime() - at.getTime()) < DAY_MS,
      ),
    exactTime: (given) =>
      element(
        given,
        (at) => zonedTimeText(at, settings.timeZone),
        () => false,
      ),
  }
}
