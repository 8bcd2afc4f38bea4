import type pg from 'pg'
import { z } from 'zod'
import { changedSchema, viewPageSchema, viewSchema } from './account-schemas.ts'
import { rowFilter, rowIdSchema } from './filters.ts'
import { type Route, refuse, reply, route } from './route.ts'
import { createView, deleteView, listViews, newViewSchema, viewScreens } from './views.ts'

const tag = 'Views'

/** Names for filters of the page's lists. */
export function viewRoutes({ pool, reads }: { pool: pg.Pool; reads: pg.Pool }): Route[] {
  return [
    route({
      id: 'listViews',
      method: 'get',
      path: '/v1/views',
      tag,
      summary: 'List views, oldest first',
      roles: ['reader', 'operator'],
      query: rowFilter.extend({ screen: z.enum(viewScreens).optional() }),
      answers: { 200: { description: 'One page', schema: viewPageSchema } },
      handle: async ({ query }) => reply(200, await listViews(reads, query)),
    }),
    route({
      id: 'createView',
      method: 'post',
      path: '/v1/views',
      tag,
      summary: 'Give a filter a name, for everybody',
      description: 'Audited.',
      roles: ['operator'],
      body: {
        schema: newViewSchema.meta({
          id: 'NewView',
          example: { screen: 'sends', name: 'Bounced today', query: 'status=bounced&since=24h' },
        }),
        limit: 20_000,
      },
      answers: { 201: { description: 'The view', schema: viewSchema } },
      problems: { 409: ['name_taken'] },
      async handle({ body, actor }) {
        const view = await createView(pool, body, { actor, via: 'api' })
        return view ? reply(201, view) : refuse(409, 'name_taken', 'another view of this list has the name')
      },
    }),
    route({
      id: 'deleteView',
      method: 'delete',
      path: '/v1/views/:id',
      tag,
      summary: 'Remove a view',
      description: 'Audited.',
      roles: ['operator'],
      params: z.strictObject({ id: rowIdSchema }),
      missing: 'no view has this id',
      answers: { 200: { description: 'It is gone', schema: changedSchema } },
      async handle({ params, actor }) {
        return (await deleteView(pool, params.id, { actor, via: 'api' })) ? reply(200, { outcome: 'done' as const }) : undefined
      },
    }),
  ]
}
