import { defineConfig, env, key } from 'oncehook'

// Wise's events speak of our own accounts and hold no personal data: all these emails go to ourselves. The secret of the source
// is Wise's public key.
export default defineConfig({
  sources: {
    wise: { provider: 'wise', secrets: env.list('WISE_WEBHOOK_SECRETS') },
    inboxili: { provider: 'inboxili', secrets: env.list('INBOXILI_WEBHOOK_SECRETS') },
  },
  followUps: [
    {
      name: 'credit',
      source: 'wise',
      type: 'balances#credit',
      // The ID is that of the balance, which is credited often: the time tells which.
      email: ({ data }) => ({
        key: key('balance', data.resource.id, 'credited', data.occurred_at),
        to: 'accounting@example.com',
        from_email: 'billing@example.com',
        subject: `${data.amount} ${data.currency} came in`,
        html_body: '<p>A Wise balance was credited.</p>',
      }),
    },
    {
      name: 'payout failed',
      source: 'wise',
      type: 'transfers#payout-failure',
      email: ({ data }) => ({
        key: key('transfer', data.resource?.id ?? data.transfer_id, 'failed'),
        to: 'accounting@example.com',
        from_email: 'billing@example.com',
        subject: 'A transfer has failed',
        html_body: '<p>Wise could not pay it out.</p>',
      }),
    },
    {
      name: 'refund',
      source: 'wise',
      type: 'transfers#refund',
      email: ({ data }) => ({
        key: key('transfer', data.resource.id, 'refunded'),
        to: 'accounting@example.com',
        from_email: 'billing@example.com',
        subject: 'A transfer was refunded',
        html_body: '<p>Wise has sent the money back to us.</p>',
      }),
    },
    {
      name: 'payout',
      source: 'wise',
      type: 'transfers#state-change',
      email: ({ data }) =>
        data.current_state === 'outgoing_payment_sent' && {
          key: key('transfer', data.resource.id, data.current_state),
          to: 'accounting@example.com',
          from_email: 'billing@example.com',
          subject: `Transfer ${data.resource.id} is paid out`,
          html_body: '<p>The money has left our account.</p>',
        },
    },
  ],
})
