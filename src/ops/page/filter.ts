import type { Request } from 'express'
import type { z } from 'zod'
import { problemsOf } from '../filters.ts'
import type { Mask } from '../personal-data.ts'
import type { Problem } from './action.ts'
import { field } from './components.ts'
import { type Html, html } from './html.ts'
import { sharedTime, shownTime, typedTime } from './typed-time.ts'
import type { View } from './view.ts'

/** The filter of a list as its address has it: what was given, to be shown in the form again, and what it means, or what is wrong. */
export type ReadFilter<Filter> = {
  given: Record<string, string>
  /** The same with its times as anybody reads them, whatever their zone. */
  asked: Record<string, string>
} & ({ filter: Filter; problems?: never } | { filter?: never; problems: Problem[] })

/** Fields of the page's own, which no filter has. */
const OF_THE_PAGE = ['done', 'view']

/**
 * Reads the query string; empty fields of a form are not given, and several of one name are a comma list. What the mask hides is not
 * searched for. Times are read in the person's zone where a view is given.
 */
export function readFilter<Schema extends z.ZodType>(
  req: Request,
  schema: Schema,
  mask?: Pick<Mask, 'problemsOf'>,
  view?: View,
): ReadFilter<z.output<Schema>> {
  const url = new URL(req.originalUrl, 'http://page')
  const given: Record<string, string> = {}
  for (const name of new Set(url.searchParams.keys())) {
    const value = url.searchParams
      .getAll(name)
      .filter((text) => text !== '')
      .join(',')
    if (value !== '' && !OF_THE_PAGE.includes(name)) given[name] = value
  }
  const asked = { ...given }
  for (const name of Object.keys(timeLabels))
    if (view && given[name] !== undefined) asked[name] = typedTime(given[name], view.settings.timeZone, view.now)
  const parsed = schema.safeParse(asked)
  if (!parsed.success) {
    const problems = problemsOf(parsed.error).map((problem) =>
      view && isTime(problem) ? { ...problem, message: WRONG_TIME } : problem,
    )
    return { given, asked, problems }
  }
  const problems = mask?.problemsOf(parsed.data) ?? []
  return problems.length > 0 ? { given, asked, problems } : { given, asked, filter: parsed.data }
}

/** As the fields for times have them, in which more can be written than the API takes. */
export const timeLabels = { since: 'Since', until: 'Until', unknown_since: 'A call unknown since' } as const

const LIKE_TIMES = 'like 24h, 7d or 2026-11-29 22:00'
const WRONG_TIME = `must be a time ${LIKE_TIMES}`
const isTime = ({ path }: Problem) => Object.hasOwn(timeLabels, path)

/** A field for a time, which shows an instant as it reads one: in the person's zone. */
export function timeField(
  name: keyof typeof timeLabels,
  { given, problems = [] }: Pick<ReadFilter<unknown>, 'given' | 'problems'>,
  { settings: { timeZone } }: View,
): Html {
  const value = given[name] && shownTime(given[name], timeZone)
  return field({ name, label: timeLabels[name], value, problems, hint: `${LIKE_TIMES}, in ${timeZone}` })
}

/** Makes the times of an address what anybody reads as the same, whatever their zone. */
export function shareTimes(fields: URLSearchParams, { settings: { timeZone }, now }: View): void {
  for (const name of Object.keys(timeLabels)) {
    const given = fields.get(name)
    if (given) fields.set(name, sharedTime(given, timeZone, now))
  }
}

/** Copies the address of a list, for somebody who may live in another zone. */
export function copyLink({ address, view }: { address: string; view: View }): Html {
  const url = new URL(address, 'http://page')
  shareTimes(url.searchParams, view)
  return html`<button type="button" class="quiet" data-copy="address" data-address="${url.pathname + url.search}" hidden>Copy link</button>`
}

/** An address with these fields changed; `null` takes one out. */
export function addressWith(address: string, changes: Record<string, string | null>): string {
  const url = new URL(address, 'http://page')
  for (const [name, value] of Object.entries(changes)) {
    if (value === null) url.searchParams.delete(name)
    else url.searchParams.set(name, value)
  }
  return url.pathname + url.search
}
