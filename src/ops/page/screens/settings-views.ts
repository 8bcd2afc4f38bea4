import { Router } from 'express'
import { z } from 'zod'
import { readRowId } from '../../filters.ts'
import { type Mask, maskFor, namesAddress } from '../../personal-data.ts'
import { deleteView, listViews, type ViewRow } from '../../views.ts'
import { addAction } from '../action.ts'
import { actionForm, pager, table } from '../components.ts'
import { type Html, html } from '../html.ts'
import { missingPage, screen } from '../page.ts'
import type { ScreenDeps } from '../routes.ts'
import { needsOperator, rowsOf, settingsPage } from '../settings-frame.ts'
import { mayDecide, type Visit } from '../visit.ts'

const HERE = '/ops/settings/views'

/** The views that everybody has, to be taken away when nobody wants them any more. */
export function settingsViewsScreen(deps: ScreenDeps): Router {
  const router = Router({ caseSensitive: true, strict: true })
  router.get(
    HERE,
    screen(deps, async (visit, req) => {
      const { views, next_cursor } = await listViews(deps.reads, rowsOf(req))
      const mask = maskFor(visit.session.person.role, deps.config())
      const list =
        views.length === 0 ? html`<p>No view yet. A list with a filter has “Save as a view”.</p>` : listOf(views, visit, mask)
      return settingsPage(
        HERE,
        html`${!mayDecide(visit) && needsOperator('Deleting views')}${list}${pager(visit.address, next_cursor)}`,
      )
    }),
  )
  addAction(router, deps, `${HERE}/:id/delete`, {
    roles: ['operator'],
    body: z.strictObject({}),
    async handle({ actor, req }) {
      const id = readRowId(String(req.params.id))
      if (id === undefined) return { page: missingPage('No such view', html`<a href="${HERE}">Views</a>`) }
      const isDeleted = await deleteView(deps.pool, id, { actor, via: 'page' })
      return { to: HERE, notice: { text: isDeleted ? 'The view is deleted.' : 'The view was deleted before.' } }
    },
  })
  return router
}

function listOf(views: readonly ViewRow[], visit: Visit, mask: Mask): Html {
  // Its link would tell the address that it asks for.
  const name = (view: ViewRow) =>
    mask.isOn && namesAddress(view.query)
      ? mask.text(view.name)
      : html`<a href="/ops/${view.screen}?${view.query}">${mask.text(view.name)}</a>`
  const remove = (view: ViewRow) =>
    actionForm({
      action: `${HERE}/${view.id}/delete`,
      fields: html`<button class="quiet" aria-label="Delete the view ${view.name}">Delete</button>`,
      byApi: { method: 'DELETE', path: `/v1/views/${view.id}` },
    })
  return table({
    caption: 'Views, the oldest first; everybody has them',
    head: ['Name', 'List', 'Made', 'By', html`<span class="hidden">Delete</span>`],
    rows: views.map(
      (view) =>
        html`<tr><td class="first">${name(view)}</td><td>${view.screen}</td><td data-label="Made">${visit.view.time(view.created_at)}</td><td data-label="by">${mask.text(view.created_by)}</td><td>${mayDecide(visit) && remove(view)}</td></tr>`,
    ),
    className: 'stack',
  })
}
