import type { Source } from '../config.ts'
import type { Log } from '../log.ts'
import type { Postback, WebhookRequest } from '../providers/provider.ts'
import type { ProviderWord } from '../providers/signature.ts'
import { callProvider, type Fetch } from './provider-calls.ts'

export interface AskerDeps {
  log: Pick<Log, 'info' | 'warn'>
  fetch: Fetch
  now(): number
}

const MOST_QUESTIONS_AT_ONCE = 16
/** A token is not used in its last seconds: it has to live until the provider has read it. */
const TOKEN_MARGIN_SECONDS = 30

/**
 * Asks providers whether a request is their own; undefined when no word could be had. A word is about one request and is never kept;
 * only the token is.
 */
export function createAsker({ log, fetch, now }: AskerDeps) {
  const tokens = new WeakMap<Source, { token: string; until: number }>()
  let questions = 0

  async function tokenOf(source: Source, postback: Postback): Promise<string | undefined> {
    const kept = tokens.get(source)
    if (kept && now() / 1000 < kept.until) return kept.token
    const answer = await callProvider(fetch, postback.token())
    const read = answer?.status === 200 ? postback.readToken(answer.text ?? '') : undefined
    if (read) tokens.set(source, { token: read.token, until: now() / 1000 + read.seconds - TOKEN_MARGIN_SECONDS })
    else log.warn({ source: source.name, status: answer?.status }, 'the provider gave no token to ask it with')
    return read?.token
  }

  async function askAll(source: Source, postback: Postback, request: WebhookRequest): Promise<ProviderWord | undefined> {
    const token = await tokenOf(source, postback)
    if (token === undefined) return undefined
    for (const [secretIndex, secret] of source.secrets.entries()) {
      const question = postback.question(request, secret, token)
      if (!question) return { isRight: false }
      const answer = await callProvider(fetch, question)
      // Withdrawn before its time; the next delivery gets another.
      if (answer?.status === 401) tokens.delete(source)
      const isRight = answer?.status === 200 ? postback.read(answer.text ?? '') : undefined
      if (isRight === undefined) {
        log.warn({ source: source.name, status: answer?.status }, 'the provider did not say whether the request is its own')
        return undefined
      }
      if (isRight) return { isRight, secretIndex }
    }
    return { isRight: false }
  }

  return async (source: Source, postback: Postback, request: WebhookRequest): Promise<ProviderWord | undefined> => {
    if (questions >= MOST_QUESTIONS_AT_ONCE) return undefined
    questions += 1
    try {
      return await askAll(source, postback, request)
    } finally {
      questions -= 1
    }
  }
}
