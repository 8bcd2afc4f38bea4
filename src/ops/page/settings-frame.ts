import type { Request, Router } from 'express'
import type pg from 'pg'
import { rowFilter } from '../filters.ts'
import type { ActionAnswer, Problem } from './action.ts'
import { field } from './components.ts'
import { readFilter } from './filter.ts'
import { attribute, type Html, html, type Part } from './html.ts'
import type { Page } from './layout.ts'
import { screen } from './page.ts'
import type { ScreenDeps } from './routes.ts'
import { answerSubmission } from './submissions.ts'
import { mayDecide, type Visit } from './visit.ts'

const tabs = [
  ['/ops/settings', 'You'],
  ['/ops/settings/people', 'People and roles'],
  ['/ops/settings/tokens', 'Tokens'],
  ['/ops/settings/views', 'Views'],
  ['/ops/settings/configuration', 'Configuration'],
] as const
type SettingsPath = (typeof tabs)[number][0]

/** A page of the settings, with the links to the others. */
export function settingsPage(here: SettingsPath, main: Part, more: { heading?: string; status?: number } = {}): Page {
  const label = tabs.find(([path]) => path === here)?.[1] ?? ''
  const { heading = label, status = 200 } = more
  return {
    title: `${status >= 400 ? 'Error: ' : ''}${heading} · Settings`,
    place: 'settings',
    status,
    main: html`<nav aria-label="Settings"><ul class="tabs">${tabs.map(
      ([path, text]) => html`<li><a href="${path}"${attribute('aria-current', path === here && 'page')}>${text}</a></li>`,
    )}</ul></nav><h1>${heading}</h1>${main}`,
  }
}

/** What stands where somebody may not do what an operator may. */
export const needsOperator = (what: string): Html => html`<p class="muted">${what} needs role operator.</p>`

type Render = (visit: Visit, req: Request) => Promise<Page>

/** Mounts a list of the settings and the page of one of its rows, for operators only. */
export function addOperatorPages(
  router: Router,
  deps: ScreenDeps,
  here: SettingsPath,
  what: string,
  { list, one }: { list: Render; one: Render },
): void {
  const forOperators = (render: Render) =>
    screen(deps, (visit, req) => (mayDecide(visit) ? render(visit, req) : settingsPage(here, needsOperator(what))))
  router.get(here, forOperators(list))
  router.get(`${here}/:id`, forOperators(one))
}

/** Which rows the address asks for: the first ones where it asks for none that there can be. */
export const rowsOf = (req: Request) => readFilter(req, rowFilter).filter ?? { limit: 50 }

/** Why somebody changes something that others will ask about. */
export const reasonField = (problems: readonly Problem[], name = 'reason'): Html =>
  field({ name, label: 'Reason', required: true, maxLength: 1_000, problems, hint: 'Kept in the audit, for ever.' })

/**
 * Answers a form with a page that shows something once: the answer is kept without it, so that sending the form again neither does
 * it again nor shows it again.
 */
export async function shownOnce(pool: pg.Pool, req: Request, to: string, text: string, page: Page): Promise<ActionAnswer> {
  await answerSubmission(pool, String(req.body.form), to, { text })
  return { page }
}
