import type pg from 'pg'
import { z } from 'zod'
import { eventRowSchema } from './event-schemas.ts'
import { text } from './filters.ts'
import { type Route, refuse, reply, route } from './route.ts'
import { explainNoHit, findAnything, searchBodiesAlone } from './search.ts'
import { instant, nothingOrText, rowId } from './wire.ts'

const DAY_MS = 86_400_000

const searched = z.strictObject({
  q: text
    .refine((q) => q.trim() !== '', 'must not be empty')
    .meta({
      description: 'A key or three characters of it, an address, a message ID, an event ID, or what an event names',
      example: 'INV-1042',
    }),
  bodies: z
    .literal('1')
    .optional()
    .meta({ description: '`1` looks through the raw bodies of the last 24 hours instead', example: '1' }),
})

const namingEvent = eventRowSchema
  .pick({ id: true, source: true, event_id: true, type: true, status: true, received_at: true, error: true })
  .extend({
    follow_ups: z.array(
      z.strictObject({
        rule: z.string(),
        outcome: z.string(),
        error: nothingOrText,
        dedupe_key: nothingOrText,
        send_status: nothingOrText,
      }),
    ),
  })
  .meta({ id: 'NamingEvent' })

const foundSchema = z
  .discriminatedUnion('kind', [
    z.strictObject({ kind: z.literal('event'), id: rowId }),
    z.strictObject({ kind: z.literal('send'), dedupe_key: z.string() }),
    z.strictObject({ kind: z.literal('sends') }),
    z.strictObject({ kind: z.literal('events') }),
    z
      .strictObject({
        kind: z.literal('nothing'),
        broke: z
          .enum(['no_event', 'waiting', 'no_rule', 'failed', 'quarantined', 'not_sent', 'filtered'])
          .meta({ description: 'Where the chain from event to send broke' }),
        text: z.string().meta({ description: 'That in a sentence' }),
        searched: z.array(z.string()),
        events: z.array(namingEvent).meta({ description: 'The newest events that name it, at most 10' }),
      })
      .meta({ id: 'NoHit' }),
    z
      .strictObject({
        kind: z.literal('bodies'),
        events: z.array(eventRowSchema).meta({ description: 'Newest first, at most 20' }),
        is_complete: z.boolean().meta({ description: 'False where there may be more' }),
        searched: z.int().meta({ description: 'How many bodies were looked through' }),
        since: instant,
      })
      .meta({ id: 'BodyHits' }),
  ])
  .meta({ id: 'Found' })

/** What the search box of the page finds. */
export function searchRoutes({ reads, now }: { reads: pg.Pool; now: () => Date }): Route[] {
  return [
    route({
      id: 'search',
      method: 'get',
      path: '/v1/search',
      tag: 'Overview',
      summary: 'Find the send or event that a text means, or where the chain from event to send broke',
      description:
        '`event` and `send` are the one that it names. `sends` are those of `GET /v1/sends?q=`, and events that name it those of `GET /v1/events?ref=`; `events` are those of `GET /v1/events?event_id=`. `nothing` says why.',
      roles: ['reader', 'operator'],
      query: searched,
      answers: { 200: { description: 'What it means', schema: foundSchema } },
      problems: { 403: ['forbidden'], 409: ['already_running'] },
      async handle({ query, mask }) {
        const q = query.q.trim()
        if (query.bodies) {
          if (mask.isOn) return refuse(403, 'forbidden', 'personal data is hidden from role reader')
          const since = new Date(now().getTime() - DAY_MS)
          const hits = await searchBodiesAlone(reads, q, since)
          if (!hits) return refuse(409, 'already_running', 'another search of bodies is under way')
          return reply(200, { kind: 'bodies' as const, ...hits, since })
        }
        const found = await findAnything(reads, q, mask.isOn)
        switch (found.kind) {
          case 'send':
            return reply(200, { kind: found.kind, dedupe_key: found.key })
          case 'nothing': {
            const { searched, ...why } = await explainNoHit(reads, q, mask.isOn)
            return reply(200, { kind: found.kind, ...why, searched: [...searched] })
          }
          default:
            return reply(200, found)
        }
      },
    }),
  ]
}
