"""Unsubscribe, a Millstream API: ends a push subscription. The broker sends no message of it after the response."""

from millstream.broker.dispatch.request import BrokerRequest
from millstream.broker.push.subscriptions import subscription_on
from millstream.model.errors import MillstreamError
from millstream.wire.messages import read_request, write_response

API = "Unsubscribe"


class UnsubscribeHandler:
    def __call__(self, request: BrokerRequest) -> bytes:
        fields = read_request(API, request.version, request.frame, request.body)
        try:
            subscription_on(request.push_channel, fields["subscription_id"]).drop()
        except MillstreamError as error:
            return write_response(
                API, request.version, {"error_code": error.code.number, "error_message": error.detail}
            )
        return write_response(API, request.version, {})
