import type pg from 'pg'
import { z } from 'zod'
import { type Route, reply, route } from './route.ts'
import { findSource, listSources, type Setup } from './source-queries.ts'
import { sourceListSchema, sourceSchema } from './source-schemas.ts'

const tag = 'Sources'

/** The sources, with what they answered. */
export function sourceRoutes({ reads, setup }: { reads: pg.Pool; setup(): Setup }): Route[] {
  return [
    route({
      id: 'listSources',
      method: 'get',
      path: '/v1/sources',
      tag,
      summary: 'The sources of the configuration, then those that have left it but are still known',
      roles: ['reader', 'operator'],
      answers: { 200: { description: 'All of them', schema: sourceListSchema } },
      handle: async () => reply(200, await listSources(reads, setup())),
    }),
    route({
      id: 'findSource',
      method: 'get',
      path: '/v1/sources/:name',
      tag,
      summary: 'One source',
      roles: ['reader', 'operator'],
      params: z.strictObject({ name: z.string().meta({ example: 'stripe' }) }),
      missing: 'no source has this name',
      answers: { 200: { description: 'The source', schema: sourceSchema } },
      async handle({ params }) {
        const source = await findSource(reads, setup(), params.name)
        return source && reply(200, source)
      },
    }),
  ]
}
