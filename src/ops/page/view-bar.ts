import type { Router } from 'express'
import type pg from 'pg'
import { z } from 'zod'
import { inTransaction } from '../../db.ts'
import { maskFor, namesAddress } from '../personal-data.ts'
import { createView, deleteView, listViews, newViewSchema, type ViewRow } from '../views.ts'
import { addAction } from './action.ts'
import { actionForm, field } from './components.ts'
import { shareTimes } from './filter.ts'
import { attribute, type Html, html } from './html.ts'
import { refusalPage } from './page.ts'
import type { ScreenDeps } from './routes.ts'
import type { View } from './view.ts'
import { mayDecide, type Visit } from './visit.ts'

/** More names than that no line holds. */
const MOST_SHOWN = 30
/** Where a page begins is nothing that a view keeps. */
const OF_A_PAGE = ['cursor', 'limit', 'done', 'view']

/** A list whose filters can be kept under a name, which everybody has. */
type Screen = ViewRow['screen']

/** The same filter is the same text, in whichever order it is written, and from whichever zone its times are. */
function filterOf(query: string, view: View): string {
  const fields = new URLSearchParams(query)
  shareTimes(fields, view)
  for (const name of OF_A_PAGE) fields.delete(name)
  for (const [name, value] of [...fields]) if (value === '') fields.delete(name, value)
  fields.sort()
  return fields.toString()
}

const linkTo = (screen: Screen, { query, id }: Pick<ViewRow, 'query' | 'id'>) =>
  `/ops/${screen}?${query === '' ? '' : `${query}&`}view=${id}`

/**
 * The views of a list, and how to keep the filter of this address as one. The address says what is shown; a view is only its name. Those
 * that ask for an address are not for who may not see it.
 */
export async function viewBar(deps: ScreenDeps, screen: Screen, visit: Visit): Promise<Html> {
  const mask = maskFor(visit.session.person.role, deps.config())
  const found = await listViews(deps.reads, { screen, limit: MOST_SHOWN })
  const views = found.views.filter(({ query }) => !mask.isOn || !namesAddress(query)).map((view) => mask.apply(view))
  const url = new URL(visit.address, 'http://page')
  const query = filterOf(url.search, visit.view)
  const current =
    views.find(({ id }) => id === url.searchParams.get('view')) ??
    views.find((view) => filterOf(view.query, visit.view) === query)
  const isChanged = current !== undefined && filterOf(current.query, visit.view) !== query
  return html`<nav aria-label="Views"><ul class="tabs"><li><a href="/ops/${screen}"${attribute('aria-current', !current && query === '' && 'true')}>All</a></li>${views.map(
    (view) =>
      html`<li><a href="${linkTo(screen, view)}"${attribute('aria-current', view === current && 'true')}>${view.name}${view === current && isChanged && ' (changed)'}</a></li>`,
  )}</ul></nav>${query !== '' && (!current || isChanged) && saveLine(screen, query, isChanged ? current : undefined, visit)}`
}

function saveLine(screen: Screen, query: string, changed: ViewRow | undefined, visit: Visit): Html {
  const reset = changed && html`<a href="${linkTo(screen, changed)}">Reset to “${changed.name}”</a>`
  if (!mayDecide(visit))
    return html`<div class="actions">${reset}<span class="muted">Saving a view needs role operator.</span></div>`
  return html`<div class="actions">${reset}<details><summary>Save as a view…</summary>${actionForm({
    action: `/ops/views/${screen}`,
    fields: html`<input type="hidden" name="query" value="${query}">${
      changed && html`<input type="hidden" name="replaces" value="${changed.id}">`
    }${field({ name: 'name', label: 'Name', value: changed?.name, required: true, maxLength: 100, hint: 'Everybody sees it. The same name again replaces the view.' })}<button>Save</button>`,
    byApi: { method: 'POST', path: '/v1/views', body: { screen, name: changed?.name ?? '…', query } },
  })}</details></div>`
}

/** Mounts the keeping of views of these lists. */
export function addViewActions(router: Router, deps: ScreenDeps, screens: readonly Screen[]): void {
  for (const screen of screens)
    addAction(router, deps, `/ops/views/${screen}`, {
      roles: ['operator'],
      body: z.strictObject({
        ...newViewSchema.omit({ screen: true }).shape,
        replaces: z
          .string()
          .regex(/^\d{1,18}$/)
          .optional(),
      }),
      async handle({ body: { name, query: given, replaces }, actor, visit }) {
        const query = filterOf(given, visit.view)
        const view = await keepView(deps.pool, { screen, name, query }, replaces, { actor, via: 'page' })
        if (!view)
          return {
            page: refusalPage(
              409,
              'There is a view of this name',
              html`Nothing was changed. <a href="/ops/${screen}?${query}">Back to the list</a>, to save it under another name.`,
            ),
          }
        return { to: linkTo(screen, view), notice: { text: `View “${view.name}” saved.` } }
      },
    })
}

/** A new view; the one that it is a change of gives way if it has the same name. Undefined when another view has the name. */
async function keepView(
  pool: pg.Pool,
  view: Pick<ViewRow, 'screen' | 'name' | 'query'>,
  replaces: string | undefined,
  by: { actor: string; via: string },
): Promise<ViewRow | undefined> {
  const isTaken = new Error('another view has this name')
  return inTransaction(pool, async (tx) => {
    const created = await createView(tx, view, by)
    if (created || replaces === undefined) return created
    await deleteView(tx, replaces, by)
    const replaced = await createView(tx, view, by)
    // Then the one that was to give way had another name, and stays.
    if (!replaced) throw isTaken
    return replaced
  }).catch((error: unknown) => {
    if (error === isTaken) return undefined
    throw error
  })
}
