import { z } from 'zod'
import { field, parseJson } from '../json.ts'
import { defineProvider, type ProviderFacts } from '../provider.ts'

const provider: ProviderFacts = {
  name: 'slack',
  documentation: 'https://docs.slack.dev/authentication/verifying-requests-from-slack',
  scheme: {
    signatures: [
      {
        kind: 'hmac',
        header: 'x-slack-signature',
        match: /^v0=([0-9a-f]{64})$/g,
        algorithm: 'sha256',
        encoding: 'hex',
        secret: { form: 'text' },
      },
    ],
    timestamp: { header: 'x-slack-request-timestamp', match: /^(.*)$/g },
    signed: 'v0:{timestamp}:{body}',
  },
  toleranceSeconds: 300,
  idIsSigned: true,
  contentIsSigned: true,
  idBasis: 'provider',
  id: (event) => field(event, 'event_id'),
  // The check of the address and the notice of a rate limit have a type, but no ID.
  hashWithoutId: true,
  type: (event) => (isCallback(event) ? field(field(event, 'event'), 'type') : field(event, 'type')),
  occurredAt: (event) => field(event, 'event_time'),
  answer: ({ body }) => {
    const parsed = parseJson(body)
    if (!parsed.ok || field(parsed.value, 'type') !== 'url_verification') return undefined
    const challenge = field(parsed.value, 'challenge')
    return typeof challenge === 'string' ? challenge : undefined
  },
}

function isCallback(event: unknown): boolean {
  return field(event, 'type') === 'event_callback'
}

/** Slack's Events API (docs.slack.dev, verifying requests; @slack/bolt 5.1 `verifySlackRequest`). */
export const slack = defineProvider({
  name: 'slack',
  title: 'Slack',
  options: z.strictObject({}),
  create: () => provider,
  guide: {
    setUp:
      'In the app’s settings under Event Subscriptions turn events on and enter `https://YOUR-HOST/webhooks/slack` as the request URL: the service has to run, with the secret set, as Slack checks the address at once. Then subscribe to bot events.',
    secret: 'The app’s signing secret (Basic Information), as text. Not the verification token, which is old.',
    identity:
      '`event_id` of the body; `event.type` (`app_mention`), or the outer `type` of what is no `event_callback`. That has no ID: it is known by the hash of its body.',
    unsigned: 'Nothing of the event: time and body are signed.',
    retries:
      '2xx within 3 s is success. Not confirmed: 3 more, with the header `X-Slack-Retry-Num`; same `event_id`, new time, new signature.',
    traps: [
      'The check of the address (`url_verification`) is answered with its challenge, and stored as ignored unless a rule names it.',
      'Slash commands and interactive messages are forms, not events: what is signed of them is kept as quarantined.',
      'It sends no payments and says nothing of test mode.',
    ],
  },
  sample: {
    types: {},
    newId: (unique) => `Ev${unique.toUpperCase()}`,
    request: ({ type, id, happenedSeconds, nowSeconds, email }, sign) => {
      const body = JSON.stringify({
        token: 'unused',
        team_id: 'T061EG9R6',
        api_app_id: 'A0FFV41KK',
        event: { type, user: 'U061F1EUR', text: `A sample of ${id}`, profile: { email } },
        type: 'event_callback',
        event_id: id,
        event_time: happenedSeconds,
      })
      return {
        headers: {
          'x-slack-request-timestamp': String(nowSeconds),
          'x-slack-signature': `v0=${sign(`v0:${nowSeconds}:${body}`)}`,
        },
        body,
      }
    },
  },
})
