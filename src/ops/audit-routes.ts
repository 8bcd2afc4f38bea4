import type pg from 'pg'
import { auditPageSchema } from './account-schemas.ts'
import { listAudit } from './audit-queries.ts'
import { exportCsv } from './csv-export.ts'
import { asCsv, csvReply } from './csv-reply.ts'
import { auditFilter } from './filters.ts'
import { type Route, reply, route } from './route.ts'

/** Who has changed what, when and why. */
export function auditRoutes({ pool, reads, now }: { pool: pg.Pool; reads: pg.Pool; now: () => Date }): Route[] {
  return [
    route({
      id: 'listAudit',
      method: 'get',
      path: '/v1/audit',
      tag: 'Audit',
      summary: 'List what people and programs have changed, newest first',
      description: 'Nothing in it is ever changed or removed.',
      roles: ['reader', 'operator'],
      query: auditFilter(now),
      answers: { 200: { description: 'One page', schema: auditPageSchema, others: asCsv } },
      async handle({ query, prefers, actor, mask }) {
        if (prefers('text/csv'))
          return csvReply(
            'audit',
            await exportCsv({ pool, reads }, { list: 'audit', filter: query }, { actor, via: 'api', mask }),
          )
        return reply(200, await listAudit(reads, query))
      },
    }),
  ]
}
