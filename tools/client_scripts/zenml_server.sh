# Run zenml_step.py beside a ZenML server, because step operators need one. The server ends with the script.
set -e
export ZENML_ANALYTICS_OPT_IN=false
password=of-a-server-that-ends
port=$(python -c 'import socket; probe = socket.socket(); probe.bind(("127.0.0.1", 0)); print(probe.getsockname()[1])')
ZENML_CONFIG_PATH="$PWD/server" ZENML_SERVER_AUTO_ACTIVATE=1 ZENML_DEFAULT_USER_PASSWORD=$password \
  python -m uvicorn --port "$port" --log-level error zenml.zen_server.zen_server_api:app &
server=$!
trap 'kill $server; wait $server || true' EXIT

export ZENML_CONFIG_PATH="$PWD/client"
export ZENML_STORE_URL="http://127.0.0.1:$port" ZENML_STORE_USERNAME=default ZENML_STORE_PASSWORD=$password
until python -c "import urllib.request; urllib.request.urlopen('$ZENML_STORE_URL/health')" 2> /dev/null; do
  kill -0 $server
  sleep 1
done
python "$(dirname "$0")/zenml_step.py" "$1"
